"""Reference implementation of attention over a paged KV cache, in numpy and float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np


@dataclass
class Batch:
    """Tokens of several sequences and their KV cache.

    q: [n, heads, D]; k_pages [L, P, G, D, S]; v_pages [L, P, G, S, E]; page_table int32 [sequences, pages per
    sequence]; token_seq, token_pos: int32 [n]. scales: k_scales and v_scales [L, P, G, S] of int8 pages, by name;
    NaN in slots that have not been written.
    """

    q: np.ndarray
    k_pages: np.ndarray
    v_pages: np.ndarray
    page_table: np.ndarray
    token_seq: np.ndarray
    token_pos: np.ndarray
    scales: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def args(self) -> tuple[np.ndarray, ...]:
        return self.q, self.k_pages, self.v_pages, self.page_table, self.token_seq, self.token_pos


@dataclass(frozen=True)
class Sizes:
    """Sizes of a ``random_batch``. spans: for each sequence, the first position and the number of its tokens."""

    spans: tuple[tuple[int, int], ...] = ((0, 2), (5, 1))
    heads: int = 4
    kv_heads: int = 2
    key: int = 8
    value: int = 8
    layers: int = 2
    page: int = 4
    dtype: str = "float32"
    kv_dtype: str = "float32"
    seed: int = 0
    longest: int = field(default=0)
    """Number of positions with pages; 0: as many as are used."""


def random_batch(sizes: Sizes) -> Batch:
    rng = np.random.default_rng(sizes.seed)
    spans = sizes.spans
    pages_each = -(-max(sizes.longest, *(start + count for start, count in spans)) // sizes.page)
    pages = len(spans) * pages_each + 1
    table = rng.permutation(pages)[: len(spans) * pages_each].reshape(len(spans), pages_each).astype("int32")

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, "float32")

    cache = (sizes.layers, pages, sizes.kv_heads, sizes.page)
    tokens = [(s, start + i) for s, (start, count) in enumerate(spans) for i in range(count)]
    seq, pos = (np.array(column, "int32") for column in zip(*tokens, strict=True))
    q = normal(len(tokens), sizes.heads, sizes.key).astype(sizes.dtype)
    k_pages, v_pages = normal(*cache[:3], sizes.key, sizes.page), normal(*cache, sizes.value)
    if sizes.kv_dtype == "int8":
        codes = [np.clip(np.rint(pages * 40), -127, 127).astype("int8") for pages in (k_pages, v_pages)]
        return Batch(q, *codes, table, seq, pos, _scales(rng, cache, table, max(sizes.longest, pos.max() + 1)))
    dtype = getattr(ml_dtypes, sizes.kv_dtype, sizes.kv_dtype)
    return Batch(q, k_pages.astype(dtype), v_pages.astype(dtype), table, seq, pos)


def _scales(rng: np.random.Generator, cache: tuple[int, ...], table: np.ndarray, end: int) -> dict[str, np.ndarray]:
    """Scales [L, P, G, S] for the slots of all positions before ``end``; NaN elsewhere."""
    scales = np.full((2, *cache), np.nan, "float16")
    page, slot = table[:, np.arange(end) // cache[3]], np.broadcast_to(np.arange(end) % cache[3], (len(table), end))
    scales[:, :, page, :, slot] = rng.uniform(0.01, 0.04, (*page.shape, 2, cache[0], cache[2]))
    return {"k_scales": scales[0], "v_scales": scales[1]}


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 [..., D] and scales float16 [...] of vectors [..., D]; see ``kv_cache.append_quantized``."""
    x = x.astype("float32")
    scales = np.minimum(np.abs(x).max(-1) * np.float32(1 / 127), np.float32(65504)).astype("float16")
    wide = scales.astype("float32")[..., None]
    inverse = np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide > 0)
    return np.clip(np.rint(x * inverse), -127, 127).astype("int8"), scales


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """RoPE: ``x`` [..., D] rotated by angles [..., R/2]."""
    half = cos.shape[-1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    out = x.astype("f8")
    out[..., first] = x[..., first].astype("f8") * cos - x[..., second].astype("f8") * sin
    out[..., second] = x[..., second].astype("f8") * cos + x[..., first].astype("f8") * sin
    return out


def append(
    k_pages: np.ndarray,
    v_pages: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    page_table: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
    rotation: list[np.ndarray],
    k_first: int = 0,
    v_first: int = 0,
    interleaved: bool = False,
    scales: tuple[np.ndarray, ...] = (),
) -> tuple[np.ndarray, ...]:
    """``kv_cache.append``; with scales, k_scales and v_scales, ``kv_cache.append_quantized``."""
    k_pages, v_pages, *scales = (x.copy() for x in (k_pages, v_pages, *scales))
    heads, page_size = k_pages.shape[2], k_pages.shape[4]
    for t, (s, position) in enumerate(zip(token_seq, token_pos, strict=True)):
        row, slot = divmod(int(position), page_size)
        if not (0 <= s < len(page_table) and 0 <= row < page_table.shape[1]):
            continue
        page = page_table[s, row]
        if not 0 <= page < k_pages.shape[1]:
            continue
        key = k[t, k_first : k_first + heads]
        if rotation:
            key = rotated(key, rotation[0][t], rotation[1][t], interleaved)
        value = v[t, v_first : v_first + heads]
        if scales:
            key, scales[0][layer, page, :, slot] = quantized(key)
            value, scales[1][layer, page, :, slot] = quantized(value)
        if k_pages.dtype == ml_dtypes.float8_e4m3fn:
            key, value = key.clip(-448, 448), value.clip(-448, 448)
        k_pages[layer, page, :, :, slot] = key.astype(k_pages.dtype)
        v_pages[layer, page, :, slot] = value.astype(v_pages.dtype)
    return k_pages, v_pages, *scales


def append_quantized(
    k_pages: np.ndarray, v_pages: np.ndarray, k_scales: np.ndarray, v_scales: np.ndarray, *args: Any, **attrs: Any
) -> tuple[np.ndarray, ...]:
    """``kv_cache.append_quantized``, with its operands."""
    return append(k_pages, v_pages, *args, **attrs, scales=(k_scales, v_scales))


def attention(
    q: np.ndarray,
    k_pages: np.ndarray,
    v_pages: np.ndarray,
    page_table: np.ndarray,
    token_seq: np.ndarray,
    token_pos: np.ndarray,
    layer: int,
    optional: list[np.ndarray],
    *,
    heads: int,
    scale: float,
    names: tuple[str, ...] = (),
    first: int = 0,
    value_size: int = 0,
    window: int = 0,
    chunked: bool = False,
    sink_size: int = 0,
    soft_cap: float = 0.0,
    rotation_factor: float = 1.0,
    interleaved: bool = False,
    single_query: bool = False,
) -> np.ndarray:
    """``nn.paged_attention``, computed head by head and token by token."""
    more = dict(zip(names, optional, strict=True))
    page_size, group = k_pages.shape[4], heads // k_pages.shape[2]
    limit = page_table.shape[1] * page_size
    out = np.zeros((len(q), heads, value_size or v_pages.shape[4]))

    def turned(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        if "inv_freq" not in more:
            return x.astype("f8")
        angles = np.asarray(positions, "f4")[..., None] * more["inv_freq"]
        return rotated(x, np.cos(angles) * rotation_factor, np.sin(angles) * rotation_factor, interleaved)

    for t in range(len(q)):
        sequence, position = int(np.clip(token_seq[t], 0, len(page_table) - 1)), int(token_pos[t])
        end = int(more["lengths"][sequence]) if "lengths" in more else position + 1
        j = np.arange(max(min(end, limit), 0))
        if window:
            near = j // window == position // window if chunked else j > position - window
            if "lengths" in more:
                near &= j < position + window
            j = j[near | (j < sink_size)]
        pages = page_table[sequence, j // page_size].clip(0, k_pages.shape[1] - 1)
        for h in range(heads):
            where = (layer, pages, h // group)
            stored = k_pages[*where, :, j % page_size]
            values = stored[:, :value_size] if value_size else v_pages[*where, j % page_size]
            if "k_scales" in more:
                stored, values = (
                    x.astype("f8") * more[name][*where, j % page_size, None].astype("f8")
                    for x, name in ((stored, "k_scales"), (values, "v_scales"))
                )
            keys = turned(stored, j)
            query = q[t, first + h]
            if "cos" in more:
                query = rotated(query, more["cos"][t], more["sin"][t], interleaved)
            else:
                query = turned(query, np.array(position))
            score = keys @ query.astype("f8") * scale
            if soft_cap:
                score = np.tanh(score / soft_cap) * soft_cap
            if "slopes" in more:
                score = score + more["slopes"][h] * (j - position)
            if "biases" in more:
                farthest = more["biases"].shape[1] // 2
                score = score + more["biases"][h, (j - position).clip(-farthest, farthest) + farthest]
            sink = [more["sinks"][h]] if "sinks" in more else []
            if not len(score):
                continue
            row_max = max(score.max(), *sink) if sink else score.max()
            weights = np.exp(score - row_max)
            out[t, h] = weights @ values.astype("f8") / (weights.sum() + sum(np.exp(s - row_max) for s in sink))
    return out.astype(q.dtype)
