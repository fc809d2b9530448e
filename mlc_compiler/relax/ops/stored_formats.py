"""Dequantization of weights in the storage formats of quantized checkpoints."""

from __future__ import annotations

from ...ir.expr import PrimExpr, const
from ...tir import te
from ..info import show_shape
from .registry import operator

AWQ_CODES = 8
"""Number of 4-bit codes in a word of AWQ: those of eight consecutive outputs."""
FT_TILE = 64
"""Number of inputs per output in a tile of FasterTransformer."""


@operator("dequantize_blocks")
def dequantize_blocks(q: te.Tensor, scale: te.Tensor, *, rows: int, columns: int, dtype: str = "bfloat16") -> te.Tensor:
    """Dequantize floats with one scale per block of ``rows`` x ``columns``: ``q * scale``, computed in float32.

    q: [..., N, K] of a floating dtype; scale: [..., ceil(N / rows), ceil(K / columns)]. Returns [..., N, K] in
    ``dtype``.
    """
    _check_positive(rows=rows, columns=columns)
    if q.ndim < 2:
        raise ValueError(f"q: got {show_shape(q.shape)}; expected two axes or more")
    *lead, n, k = q.shape
    _check_shape("scale", scale, (*lead, -(-n // rows), -(-k // columns)))

    def element(*i: PrimExpr) -> PrimExpr:
        shared = scale[(*i[:-2], i[-2] // rows, i[-1] // columns)]
        return te.cast(te.cast(q[i], "float32") * te.cast(shared, "float32"), dtype)

    return te.compute(q.shape, element, name="dequantize_blocks")


@operator("dequantize_awq")
def dequantize_awq(
    q: te.Tensor, zeros: te.Tensor, scale: te.Tensor, *, group: int, dtype: str = "float16"
) -> te.Tensor:
    """Dequantize AWQ's 4-bit codes: ``(code - zero) * scale``, computed in ``dtype``.

    q: uint32 [..., K, N / 8]; zeros: uint32 [..., K / group, N / 8]; scale: [..., K / group, N]. Output ``i`` of the
    eight in a word is at bit ``4 * (i % 2 * 4 + i // 2)``. Returns [..., N, K] in ``dtype``.
    """
    _check_positive(group=group)
    if q.ndim < 2:
        raise ValueError(f"q: got {show_shape(q.shape)}; expected two axes or more")
    *lead, k, words = q.shape
    _check_shape("zeros", zeros, (*lead, k // group, words))
    _check_shape("scale", scale, (*lead, k // group, words * AWQ_CODES))

    def code(tensor: te.Tensor, row: tuple[PrimExpr, ...], n: PrimExpr) -> PrimExpr:
        place = n % AWQ_CODES
        shift = (place % 2 * 4 + place // 2) * 4
        return te.cast((tensor[(*row, n // AWQ_CODES)] >> te.cast(shift, "uint32")) & 15, "int32")

    def element(*i: PrimExpr) -> PrimExpr:
        *outer, n, j = i
        shared = (*outer, j // group)
        level = code(q, (*outer, j), n) - code(zeros, shared, n)
        return te.cast(level, dtype) * te.cast(scale[(*shared, n)], dtype)

    return te.compute((*lead, words * AWQ_CODES, k), element, name="dequantize_awq")


@operator("dequantize_ft")
def dequantize_ft(q: te.Tensor, scale: te.Tensor, *, dtype: str = "float16") -> te.Tensor:
    """Dequantize FasterTransformer's 4-bit codes for sm_75 and later: ``(code - 8) * scale``, computed in ``dtype``.

    q: int8 [K, N / 2], N and K multiples of 64; scale: [1, N]. The bytes are stored as tiles [N / 4, K / 64, 4, 32],
    each of 64 inputs for four outputs. Of 32 inputs, input j is in byte ``4 * (j % 8 // 2) + 2 * (j % 2) + j // 16`` of
    16, in in the upper 4 bits where ``j // 8`` is odd. Returns [N, K] in ``dtype``.
    """
    if q.ndim != 2:
        raise ValueError(f"q: got {show_shape(q.shape)}; expected two axes")
    k, half = q.shape
    for size in (k, half * 2):
        te.require_equal(size % FT_TILE, const(0, "int64"), f"q: remainders of {show_shape(q.shape)} by {FT_TILE}")
    _check_shape("scale", scale, (const(1, "int64"), half * 2))

    def element(n: PrimExpr, j: PrimExpr) -> PrimExpr:
        tile = (n // 4 * (k // FT_TILE) + j // FT_TILE) * 4 + n % 4
        byte = tile * 32 + j % FT_TILE // 32 * 16 + j % 8 // 2 * 4 + j % 2 * 2 + j % 32 // 16
        pair = te.cast(q[byte // half, byte % half], "int32")
        code = (pair >> te.cast(j % 16 // 8 * 4, "int32")) & 15
        return te.cast(code - 8, dtype) * te.cast(scale[0, n], dtype)

    return te.compute((half * 2, k), element, name="dequantize_ft")


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: got {size}; expected at least 1")


def _check_shape(name: str, tensor: te.Tensor, expected: tuple[PrimExpr, ...]) -> None:
    if tensor.ndim != len(expected):
        raise ValueError(f"{name}: got {show_shape(tensor.shape)}; expected {show_shape(expected)}")
    for got, size in zip(tensor.shape, expected):
        te.require_equal(got, size, f"{name}: sizes of {show_shape(tensor.shape)} and {show_shape(expected)}")
