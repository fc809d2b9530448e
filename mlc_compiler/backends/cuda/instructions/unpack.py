"""Dequantization of 4-bit integers without conversions: they become the low bits of a float's significand."""

from __future__ import annotations

import numpy as np
from llvmlite import ir as ll

from ....codegen import values as v
from ....codegen.instructions import Operands
from ....codegen.values import F16, I16, I32, i32
from ....ir.expr import PrimExpr, Var, cast
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import F16X2
from .operands import SHORT, address, load, store

CODES = 8
"""Integers of 4 bits in a word."""
ZERO = 7
"""The code of zero in symmetric quantization to 4 bits."""


def unpacked_code(place: PrimExpr) -> PrimExpr:
    """Which of a word's codes is at a place of the result: codes i and i + 4 are neighbours."""
    return place // 2 + place % 2 * 4


def dequantize_row(dtype: str) -> TensorIntrin:
    """``out[i] = (code(unpacked_code(i)) - 7) * scale`` of the 8 codes in a word, the first in its lowest bits.

    A pair of codes is put below the exponent of a pair of floats: 1024 + code in float16, 128 + code in bfloat16.
    """

    def element(word: te.Tensor, scale: te.Tensor, i: Var) -> PrimExpr:
        shift = cast("uint32", unpacked_code(i) * 4)
        return cast(dtype, cast("int32", (word[0] >> shift) & 15) - ZERO) * scale[0]

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        (word,) = load(b, row, operands, 1)
        scale = b.load(address(row, operands, 2), align=2, typ=I16)
        scales = b.bitcast(v.splat(b, scale, 2), I32)
        scaled = _half_pairs if dtype == "float16" else _bfloat_pairs
        store(b, row, operands, scaled(b, word, scales))

    def semantics(word: te.Tensor, scale: te.Tensor) -> te.Tensor:
        return te.compute((CODES,), lambda i: element(word, scale, i), name="out")

    operands = (
        Operand("out", (CODES,), dtype, scope="local"),
        Operand("word", (1,), "uint32"),
        Operand("scale", (1,), dtype),
    )
    return TensorIntrin(f"cuda.dequantize.u4.{SHORT[dtype]}", operands, semantics, {"cuda": code}, "sm_80")


def _half_pairs(b: ll.IRBuilder, word: ll.Value, scales: ll.Value) -> list[ll.Value]:
    """Codes at bits 0 and 16 give 1024 + code; those at 4 and 20, without a shift, 1024 + 16 code."""
    pairs = []
    for shifted in (word, b.lshr(word, i32(8))):
        low, high = (b.bitcast(_under(b, shifted, mask, 0x64006400), F16X2) for mask in (0x000F000F, 0x00F000F0))
        pairs.append(b.fsub(low, v.constant(F16, 1024.0 + ZERO, 2)))
        sixteenth, offset = v.constant(F16, 1 / 16, 2), v.constant(F16, -64.0 - ZERO, 2)
        pairs.append(v.intrinsic(b, "llvm.fma.v2f16", [high, sixteenth, offset], F16X2))
    factor = b.bitcast(scales, F16X2)
    return [b.fmul(pair, factor) for pair in pairs]


def _bfloat_pairs(b: ll.IRBuilder, word: ll.Value, scales: ll.Value) -> list[ll.Value]:
    """Subtraction and product by ``fma``: before sm_90 there are no others for bfloat16."""
    pairs = []
    one, offset, negative_zero = 0x3F803F80, _bfloat_bits(-128.0 - ZERO) * 0x10001, 0x80008000
    for i in range(4):
        pair = _under(b, b.lshr(word, i32(4 * i)) if i else word, 0x000F000F, 0x43004300)
        exact = _bfloat_fma(b, pair, i32(one), i32(offset))
        pairs.append(_bfloat_fma(b, exact, scales, i32(negative_zero)))
    return pairs


def _bfloat_fma(b: ll.IRBuilder, x: ll.Value, y: ll.Value, z: ll.Value) -> ll.Value:
    assembly = ll.InlineAsm(ll.FunctionType(I32, [I32] * 3), "fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r")
    return b.call(assembly, [x, y, z])


def _under(b: ll.IRBuilder, word: ll.Value, mask: int, exponents: int) -> ll.Value:
    return b.or_(b.and_(word, i32(mask)), i32(exponents))


def _bfloat_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32)) >> 16


UNPACKING = tuple(dequantize_row(dtype) for dtype in ("float16", "bfloat16"))
