"""Unpacking of 4-bit weights to 16-bit floats, two at a time (Kim et al. 2022, "Who Says Elephants Can't Run", 3.1).

A code in the low bits of the mantissa of 2 ** m, the number whose last place is 1, is ``2 ** m + code``; subtracting
``2 ** m + zero point`` is exact. The result is bitwise that of the operator ``dequantize``.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir as ll

from ....codegen.instructions import Operands
from ....codegen.values import I16, I32, i32
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import F16X2, emit
from .operands import SHORT, address, store

CODES = 8  # of a word
ZERO_POINT = 7


@dataclass(frozen=True)
class _Arithmetic:
    """Of pairs of floats in words. magic: 2 ** m, twice. zero: -(2 ** m + ZERO_POINT), twice."""

    dtype: str
    magic: int
    zero: int

    def minus_zero(self, b: ll.IRBuilder, word: ll.Value) -> ll.Value:
        if self.dtype == "bfloat16":
            return emit(b, "fma.rn.bf16x2", [word, i32(0x3F803F80), i32(self.zero)])
        return b.bitcast(b.fadd(b.bitcast(word, F16X2), b.bitcast(i32(self.zero), F16X2)), I32)

    def times(self, b: ll.IRBuilder, word: ll.Value, scale: ll.Value) -> ll.Value:
        """The product; the sum with -0 changes nothing."""
        if self.dtype == "bfloat16":
            return emit(b, "fma.rn.bf16x2", [word, scale, i32(-0x7FFF8000)])
        return b.bitcast(b.fmul(b.bitcast(word, F16X2), b.bitcast(scale, F16X2)), I32)


_ARITHMETIC = (
    _Arithmetic("float16", 0x64006400, 0xE407E407),
    _Arithmetic("bfloat16", 0x43004300, 0xC307C307),
)


def _row(floats: _Arithmetic) -> TensorIntrin:
    """``out[i] = (code i of word - 7) * scale``; code 0 is in the lowest bits."""
    dtype = floats.dtype

    def semantics(word: te.Tensor, scale: te.Tensor) -> te.Tensor:
        def element(i: Var) -> PrimExpr:
            code = (word[0] >> te.cast(i * 4, "uint32")) & te.const(15, "uint32")
            return te.cast(te.cast(code, "int32") - ZERO_POINT, dtype) * scale[0]

        return te.compute((CODES,), element, name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        word = b.load(address(row, operands, 1), align=4, typ=I32)
        scale = b.zext(b.load(address(row, operands, 2), align=2, typ=I16), I32)
        scale = b.or_(scale, b.shl(scale, i32(16)))
        pairs = []
        for i in range(CODES // 2):  # codes i and i + 4 are 16 bits apart
            codes = b.and_(b.lshr(word, i32(4 * i)), i32(0x000F000F))
            pairs.append(floats.times(b, floats.minus_zero(b, b.or_(codes, i32(floats.magic))), scale))
        low = [_halves(b, pairs[i], pairs[i + 1], 0x5410) for i in (0, 2)]
        high = [_halves(b, pairs[i], pairs[i + 1], 0x7632) for i in (0, 2)]
        store(b, row, operands, [*low, *high])

    operands = (Operand("out", (CODES,), dtype), Operand("word", (1,), "uint32"), Operand("scale", (1,), dtype))
    return TensorIntrin(f"cuda.dequantize.q4.{SHORT[dtype]}", operands, semantics, {"cuda": code}, "sm_80")


def _halves(b: ll.IRBuilder, first: ll.Value, second: ll.Value, selector: int) -> ll.Value:
    """The low or the high halves of two words in one."""
    return emit(b, "llvm.nvvm.prmt", [first, second, i32(selector)])


DEQUANTIZE = tuple(map(_row, _ARITHMETIC))
