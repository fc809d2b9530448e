"""FasterTransformer's 4-bit weights: one scale per output, codes in the order for kernels of sm_75 and later.

    scale = max |w| / 7        level = clamp(round(w / scale), -8, 7)        w' = level * scale

Each step is rounded to float16; an output of zeros has scale 0. The order is that of ``preprocess_weights`` in
cutlass_fpA_intB_gemm: codes are ``level + 8``; nibble d of word v of the four words with 32 consecutive inputs is
input ``8 * (d % 4) + d // 4 + 2 * v``; tiles of 8 words (64 inputs) of four consecutive outputs are interleaved.
Weights whose sizes are not multiples of tiles, embedding tables and output heads use groups of inputs, as in q4f16_1.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from quantization import group
from quantization.group import BLOCK_ELEMENTS, Blocks, row_slices
from quantization.schemes import Scheme

LAYOUT = "FT"
TILE = 64
"""The numbers of outputs and inputs must be multiples of this."""
OUTPUTS, WORDS, NIBBLES = 4, 8, 8
"""Outputs per tile, words per output in a tile, codes per word."""
_INPUTS = np.array([[8 * (d % 4) + d // 4 + 2 * v for d in range(NIBBLES)] for v in range(4)])
_SHIFTS = 4 * np.arange(NIBBLES, dtype=np.uint32)


def fits(shape: tuple[int, ...]) -> bool:
    """Whether the sizes of a weight of ``shape`` [N, K] are multiples of ``TILE``."""
    return all(size % TILE == 0 for size in shape)


def tensors(shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of codes, int8 [K, N / 2], and scales [1, N] of a weight [N, K]; other layouts: see ``group``."""
    if layout != LAYOUT:
        return group.tensors(shape, scheme.of_ends, layout)
    outputs, inputs = shape
    return {"q_weight": ((inputs, outputs // 2), scheme.storage_dtype), "q_scale": ((1, outputs), scheme.model_dtype)}


def encode_rows(blocks: Blocks, shape: tuple[int, ...], scheme: Scheme, layout: str) -> dict[str, np.ndarray]:
    """Quantize a weight of ``shape``; blocks() yields it in pieces of consecutive rows.

    Raises ValueError for NaN, infinities and values beyond float16.
    """
    if layout != LAYOUT:
        return group.encode_rows(blocks, shape, scheme.of_ends, layout)
    outputs, inputs = shape
    words, scales = np.empty((outputs, inputs // NIBBLES), np.uint32), np.empty(outputs, np.float16)
    start = 0
    for block in blocks():
        for rows in row_slices(block):
            part = slice(start, start + len(rows))
            levels, scales[part] = quantized(rows)
            words[part] = packed(levels)
            start = part.stop
    return {"q_weight": in_tiles(words), "q_scale": scales[None]}


def decode_rows(
    made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str
) -> Iterator[np.ndarray]:
    """Dequantize a weight of ``shape`` to blocks of rows [n, K] in float16."""
    if layout != LAYOUT:
        yield from group.decode_rows(made, scheme.of_ends, shape, layout)
        return
    words, scales = out_of_tiles(made["q_weight"]), made["q_scale"][0]
    step = max(1, BLOCK_ELEMENTS // max(1, prod(shape[1:])))
    for start in range(0, len(words), step):
        part = slice(start, start + step)
        yield unpacked(words[part]).astype(np.float16) * scales[part, None]


def quantized(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize rows [n, K] of any float dtype to levels int8 [n, K], -8 to 7, and scales float16 [n].

    Raises ValueError for values that overflow float16.
    """
    with np.errstate(over="ignore"):
        halves = rows.astype(np.float16)
    scales = np.abs(halves).max(axis=1) / np.float16(7)
    if not np.isfinite(scales).all():
        raise ValueError("a weight that float16 cannot hold")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        levels = np.rint((halves.astype(np.float32) / scales[:, None].astype(np.float32)).astype(np.float16))
    return np.clip(np.where(np.isnan(levels), 0, levels), -8, 7).astype(np.int8), scales


def packed(levels: np.ndarray) -> np.ndarray:
    """Pack levels [n, K] into words uint32 [n, K / 8]."""
    codes = (levels + 8).astype(np.uint32).reshape(len(levels), -1, _INPUTS.size)[..., _INPUTS]
    return np.bitwise_or.reduce(codes << _SHIFTS, axis=-1).reshape(len(levels), -1)


def unpacked(words: np.ndarray) -> np.ndarray:
    """Unpack words [n, K / 8] to levels int8 [n, K]."""
    codes = ((words[..., None] >> _SHIFTS) & np.uint32(15)).astype(np.int8) - np.int8(8)
    levels = np.empty((len(words), words.shape[1] // 4, _INPUTS.size), np.int8)
    levels[..., _INPUTS.reshape(-1)] = codes.reshape(levels.shape)
    return levels.reshape(len(words), -1)


def in_tiles(words: np.ndarray) -> np.ndarray:
    """Interleave words [N, K / 8] in tiles; returns the stored bytes, int8 [K, N / 2]."""
    outputs, row = words.shape
    tiles = words.reshape(outputs // OUTPUTS, OUTPUTS, row // WORDS, WORDS).swapaxes(1, 2)
    return np.ascontiguousarray(tiles).view(np.int8).reshape(row * NIBBLES, outputs // 2)


def out_of_tiles(q_weight: np.ndarray) -> np.ndarray:
    """The inverse of ``in_tiles``: words uint32 [N, K / 8] from the stored bytes [K, N / 2]."""
    inputs, half = q_weight.shape
    tiles = np.ascontiguousarray(q_weight).view(np.uint32).reshape(-1, inputs // TILE, OUTPUTS, WORDS)
    return tiles.swapaxes(1, 2).reshape(2 * half, inputs // NIBBLES)
