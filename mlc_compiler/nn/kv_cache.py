"""The paged KV cache in traced functions: tensors owned by the caller and written in place."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import PrimExpr
from ..relax import ops
from ..relax.nodes import constant
from ..relax.ops.quantized_cache import CODE_DTYPE, SCALE_DTYPE
from ..tir import te
from . import op, spec
from .states import State, Tokens
from .tensor import Tensor, apply, apply_tuple

PAGE_SIZES = (16, 32, 64)
KV_DTYPES = ("float16", "float32", "bfloat16", "int8", "float8_e4m3fn")
LATENT_DTYPES = ("float16", "float32", "bfloat16")
SCALES = ("k_scales", "v_scales")


class CacheError(MLCError, ValueError):
    """Inconsistent sizes of a cache, or an unsupported dtype."""


class RopeMode(enum.IntEnum):
    """Where rotary position embedding is applied."""

    NONE = 0  # not applied
    NORMAL = 1  # keys are rotated before they are stored
    INLINE = 2  # keys are stored unrotated; attention rotates them


@dataclass(frozen=True, eq=False)
class KVCacheConfig(State):
    """Sizes and dtypes of the KV cache of a model's layers, or of a group of layers.

    head_dim: elements of a key; v_head_dim: elements of a value, ``head_dim`` when None. latent: each layer stores one
    vector of ``head_dim`` elements per position, whose first ``v_head_dim`` elements are the value of all heads.
    inv_freq: float32 [R/2], the rotation angle of each pair per position, in radians; R <= head_dim elements are
    rotated. attention_factor: multiplies cosines and sines. interleaved: pairs are (2 d, 2 d + 1), else (d, d + R/2).
    sliding_window: the number of positions visible to a token, None for all; the first ``attention_sink_size``
    positions stay visible. chunked: a token sees only its own chunk of ``sliding_window`` positions.
    page_size: positions per page. prefix: prefix of the inputs' names, distinct for each group of layers.
    rotary_axes: for each pair, the axis of ``rotary_pos`` whose positions rotate it (Qwen2-VL, section 2.1); () where
    ``token_pos`` does. kept: whether later calls read the stored keys and values; if not, all layers share the
    memory of one layer. dtype: one of KV_DTYPES, of LATENT_DTYPES when latent; int8 has a float16 scale for each
    position and key/value head, of keys and of values (``kv_cache.append_quantized``). Raises CacheError for
    inconsistent sizes and for other dtypes.
    """

    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    dtype: str = "float16"
    rope_mode: RopeMode = RopeMode.NONE
    inv_freq: np.ndarray | None = None
    attention_factor: float = 1.0
    sliding_window: int | None = None
    chunked: bool = False
    v_head_dim: int | None = None
    latent: bool = False
    interleaved: bool = False
    attention_sink_size: int = 0
    page_size: int = PAGE_SIZES[0]
    prefix: str = ""
    kept: bool = True
    rotary_axes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            heads = f"{self.num_attention_heads} heads over {self.num_key_value_heads}"
            raise CacheError(f"num_key_value_heads: got {heads}; expected a divisor")
        if (self.rope_mode is RopeMode.NONE) != (self.inv_freq is None):
            raise CacheError(f"inv_freq: expected for rope_mode normal and inline only; got {self.rope_mode.value}")
        if self.inv_freq is not None and 2 * len(self.inv_freq) > self.head_dim:
            raise CacheError(f"inv_freq: got {len(self.inv_freq)} pairs; expected at most {self.head_dim // 2}")
        if self.page_size not in PAGE_SIZES:
            raise CacheError(f"page_size: got {self.page_size}; expected one of {', '.join(map(str, PAGE_SIZES))}")
        dtypes = LATENT_DTYPES if self.latent else KV_DTYPES
        if self.dtype not in dtypes:
            kind = "of latent attention " if self.latent else ""
            raise CacheError(f"dtype of a KV cache {kind}is {self.dtype!r}; expected one of {', '.join(dtypes)}")
        if self.latent and (self.num_key_value_heads != 1 or self.value_size > self.head_dim):
            heads = f"{self.num_key_value_heads} heads, v_head_dim {self.value_size}"
            raise CacheError(f"latent: got {heads}; expected one head and at most head_dim, {self.head_dim}")

    @property
    def value_size(self) -> int:
        """Number of elements of a value."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def scale_dtype(self) -> str | None:
        """The dtype of the scales of keys and values; None for an unquantized cache."""
        return SCALE_DTYPE if self.dtype == CODE_DTYPE else None

    @property
    def position_axes(self) -> int:
        return max(self.rotary_axes, default=-1) + 1

    @property
    def stored_layers(self) -> int:
        """The number of layers with memory of their own."""
        return self.num_hidden_layers if self.kept else 1

    def fields(self) -> dict[str, spec.Tensor]:
        pages = (self.stored_layers, f"{self.prefix}num_pages", self.num_key_value_heads)
        fields = {"k_pages": spec.Tensor((*pages, self.head_dim, self.page_size), self.dtype)}
        if not self.latent:
            fields["v_pages"] = spec.Tensor((*pages, self.page_size, self.value_size), self.dtype)
        if self.scale_dtype:
            fields |= {name: spec.Tensor((*pages, self.page_size), self.scale_dtype) for name in SCALES}
        return {**fields, "page_table": spec.Tensor(("num_seqs", f"{self.prefix}max_pages"), "int32")}

    def view(self, tensors: Mapping[str, Tensor], tokens: Tokens) -> PagedKVCache:
        return PagedKVCache(self, tokens, **tensors)

    def describe(self) -> dict[str, Any]:
        sizes = {
            "num_hidden_layers": self.stored_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "v_head_dim": self.value_size,
            "page_size": self.page_size,
            "dtype": self.dtype,
            "sliding_window_size": (self.kept and self.sliding_window) or -1,
            "attention_sink_size": self.attention_sink_size,
        }
        scales = {"scale_dtype": self.scale_dtype} if self.scale_dtype else {}
        return {"kind": "latent_kv" if self.latent else "paged_kv", "prefix": self.prefix, **sizes, **scales}

    @property
    def bytes_per_token(self) -> int:
        elements = self.head_dim + (0 if self.latent else self.value_size)
        scales = len(SCALES) * dt.nbytes(self.scale_dtype) if self.scale_dtype else 0
        return self.stored_layers * self.num_key_value_heads * (elements * dt.nbytes(self.dtype) + scales)


class PagedKVCache:
    """The view of a KV cache in a traced function. Attention is causal unless the tokens have ``lengths``.

    token_seq, token_pos: int32 [n], the row of ``page_table`` of each token, and its position in the sequence. biases:
    float32 [H, 2 R + 1] or None, added to scores by distance in all layers, see the operator ``nn.paged_attention``.
    """

    def __init__(
        self,
        config: KVCacheConfig,
        tokens: Tokens,
        k_pages: Tensor,
        page_table: Tensor,
        v_pages: Tensor | None = None,
        k_scales: Tensor | None = None,
        v_scales: Tensor | None = None,
    ):
        self.config = config
        self.single_query = tokens.single_query
        self.k_pages = k_pages
        self.v_pages = k_pages if v_pages is None else v_pages
        self.k_scales, self.v_scales = k_scales, v_scales
        self.page_table = page_table
        self.token_seq = tokens.token_seq
        self.token_pos = tokens.token_pos
        self.lengths = tokens.lengths
        self.rotary_pos = tokens.rotary_pos
        self.biases: Tensor | None = None
        self._angles: tuple[Tensor, Tensor] | None = None

    def attention_with_fused_qkv(
        self, layer_id: int, qkv: Tensor, num_qo_heads: int, sm_scale: float | None = None
    ) -> Tensor:
        """Append the keys and values of layer ``layer_id`` and compute attention.

        qkv: [n, H + 2 G, D]: queries, then keys, then values. sm_scale: factor of the scores, 1/sqrt(D) when None.
        Returns [n, H, D]; for qkv [b, s, H + 2 G, D] with b s = n, [b, s, H, D].
        """
        if qkv.ndim == 4:
            b, s, heads, size = qkv.shape
            flat = self.attention_with_fused_qkv(layer_id, qkv.reshape(b * s, heads, size), num_qo_heads, sm_scale)
            return flat.reshape(b, s, *flat.shape[1:])
        kv_heads = self.config.num_key_value_heads
        self._append(layer_id, qkv, qkv, num_qo_heads, num_qo_heads + kv_heads)
        return self._attend(layer_id, qkv, num_qo_heads, sm_scale)

    def attention(
        self,
        layer_id: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sm_scale: float | None = None,
        *,
        sliding_window: int | None = None,
        soft_cap: float = 0.0,
        sinks: Tensor | None = None,
        slopes: Tensor | None = None,
    ) -> Tensor:
        """Append the keys and values of layer ``layer_id`` and compute attention; returns [n, H, E].

        q: [n, H, D]; k: [n, G, D]; v: [n, G, E]. sm_scale: factor of the scores, 1/sqrt(D) when None. sliding_window:
        of this layer, the cache's when None. soft_cap, and sinks and slopes, floating [H]: see the operator
        ``nn.paged_attention``.
        """
        self._append(layer_id, k, v, 0, 0)
        window = self.config.sliding_window if sliding_window is None else sliding_window
        more = {name: x for name, x in (("sinks", sinks), ("slopes", slopes)) if x is not None}
        return self._attend(layer_id, q, _heads(q), sm_scale, window, soft_cap, more)

    def attention_to_stored(self, layer_id: int, q: Tensor, sm_scale: float | None = None) -> Tensor:
        """Compute causal attention to the stored keys and values of layer ``layer_id``; [n, H, D] -> [n, H, E].

        sm_scale: factor of the scores, 1/sqrt(D) when None.
        """
        return self._attend(layer_id, q, _heads(q), sm_scale)

    def append(self, layer_id: int, k: Tensor, v: Tensor) -> None:
        """Append keys [n, G, D] and values [n, G, E] of layer ``layer_id`` without computing attention."""
        self._append(layer_id, k, v, 0, 0)

    def latent_attention(self, layer_id: int, q: Tensor, latent: Tensor, sm_scale: float) -> Tensor:
        """Append the latent vector of each token and compute causal latent attention in its absorbed form.

        q: [n, H, D], already rotated; latent: [n, D]. Returns [n, H, E] (DeepSeek-V2, section 2.1).
        """
        self.k_pages = apply(ops.append_latent, self.k_pages, latent, *self._places(), self._stored(layer_id))
        self.v_pages = self.k_pages
        return self._attend(layer_id, q, _heads(q), sm_scale)

    def _append(self, layer: int, k: Tensor, v: Tensor, k_first: int, v_first: int) -> None:
        rotation = self.angles() if self.config.rope_mode is RopeMode.NORMAL else ()
        scales = self._scales()
        self.k_pages, self.v_pages, *updated = apply_tuple(
            ops.append_quantized if scales else ops.append,
            self.k_pages,
            self.v_pages,
            *scales.values(),
            k,
            v,
            *self._places(),
            self._stored(layer),
            rotation,
            k_first=k_first,
            v_first=v_first,
            interleaved=self.config.interleaved,
        )
        if scales:
            self.k_scales, self.v_scales = updated

    def _attend(
        self,
        layer: int,
        q: Tensor,
        heads: int,
        sm_scale: float | None,
        window: int | None = None,
        soft_cap: float = 0.0,
        more: dict[str, Tensor] | None = None,
    ) -> Tensor:
        c = self.config
        ends = {} if self.lengths is None else {"lengths": self.lengths}
        biases = {} if self.biases is None else {"biases": self.biases}
        optional = {**self._rotation(), **ends, **biases, **(more or {}), **self._scales()}
        return apply(
            ops.paged_attention,
            q,
            self.k_pages,
            self.v_pages,
            *self._places(),
            self._stored(layer),
            tuple(optional.values()),
            heads=heads,
            scale=1 / math.sqrt(c.head_dim) if sm_scale is None else sm_scale,
            names=tuple(optional),
            value_size=c.value_size if c.latent else 0,
            window=(c.sliding_window if window is None else window) or 0,
            chunked=c.chunked,
            sink_size=c.attention_sink_size,
            soft_cap=soft_cap,
            rotation_factor=c.attention_factor,
            interleaved=c.interleaved,
            single_query=self.single_query,
        )

    def _stored(self, layer: int) -> int:
        return layer if self.config.kept else 0

    def _scales(self) -> dict[str, Tensor]:
        """The scale arrays of keys and values by name, if the cache is quantized."""
        given = zip(SCALES, (self.k_scales, self.v_scales), strict=True)
        return {name: scales for name, scales in given if scales is not None}

    def _places(self) -> list[Tensor]:
        return [self.page_table, self.token_seq, self.token_pos]

    def _rotation(self) -> dict[str, Tensor]:
        """The optional rotation inputs of ``nn.paged_attention``, for queries and for keys stored unrotated."""
        if self.config.rope_mode is RopeMode.NONE or self.config.latent:
            return {}
        if self.config.rope_mode is RopeMode.INLINE:
            return {"inv_freq": self._inv_freq()}
        cos, sin = self.angles()
        return {"cos": cos, "sin": sin}

    def angles(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the tokens' rotation angles, float32 [n, R/2], computed once for all layers."""
        if self._angles is None:
            table = _rope_table(self.config.attention_factor)
            self._angles = op.tensor_expr_op(table, "rope", [self._positions(), self._inv_freq()])
        return self._angles

    def _positions(self) -> Tensor:
        """The position of each token, int32 [n], or of each of its pairs, int32 [n, R/2]."""
        axes = self.config.rotary_axes
        if not axes:
            return self.token_pos
        assert self.rotary_pos is not None
        return op.permute_dims(op.take(self.rotary_pos, Tensor(constant(np.array(axes, np.int32))), axis=0), (1, 0))

    def _inv_freq(self) -> Tensor:
        return Tensor(constant(np.asarray(self.config.inv_freq, dtype=np.float32)))


def _heads(q: Tensor) -> int:
    heads = q.shape[1]
    if not isinstance(heads, int):
        raise CacheError(f"q: got {heads} heads; expected a known number")
    return heads


def _rope_table(factor: float) -> Callable[[te.Tensor, te.Tensor], tuple[te.Tensor, te.Tensor]]:
    def rope(positions: te.Tensor, inv_freq: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        shape = (positions.shape[0], inv_freq.shape[0])

        def angle(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            return te.f32(positions[i] if positions.ndim == 1 else positions[i, j]) * inv_freq[j]

        cos = te.compute(shape, lambda i, j: te.cos(angle(i, j)) * te.f32(factor), name="cos")
        sin = te.compute(shape, lambda i, j: te.sin(angle(i, j)) * te.f32(factor), name="sin")
        return cos, sin

    return rope
