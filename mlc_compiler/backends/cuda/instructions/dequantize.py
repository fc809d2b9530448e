"""Unpacking of 4-bit weights to 16-bit floats, two at a time (Kim et al. 2022, "Who Says Elephants Can't Run", 3.1).

A code in the low bits of the mantissa of 2 ** m, the number whose last place is 1, is ``2 ** m + code``; subtracting
``2 ** m + zero point`` is exact. The result is bitwise that of the operator ``dequantize``.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir as ll

from ....codegen import values as v
from ....codegen.instructions import Operands
from ....codegen.values import F16, I16, I32, i32
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import F16X2, emit
from .operands import SHORT, address, store

CODES = 8  # of a word
ZERO_POINT = 7


@dataclass(frozen=True)
class _Arithmetic:
    """Of pairs of floats in words. magic: 2 ** m, twice. zero: -(2 ** m + ZERO_POINT), twice.

    Codes i and i + 4 of a word are 16 bits apart.
    """

    dtype: str
    magic: int
    zero: int

    def minus_zeros(self, b: ll.IRBuilder, word: ll.Value) -> list[ll.Value]:
        """The codes less the zero point, in pairs. float16 has room for codes 4 bits higher, 16 times as large."""
        pairs: list[ll.Value] = []
        for i in range(CODES // 2):
            higher = self.dtype == "float16" and i % 2 == 1
            low = i - higher
            shifted = b.lshr(word, i32(4 * low)) if low else word
            codes = b.and_(shifted, i32(0x00F000F0 if higher else 0x000F000F))
            number = b.or_(codes, i32(self.magic))
            pairs.append(self._sixteenth_minus_zero(b, number) if higher else self._minus_zero(b, number))
        return pairs

    def _minus_zero(self, b: ll.IRBuilder, word: ll.Value) -> ll.Value:
        if self.dtype == "bfloat16":
            return emit(b, "fma.rn.bf16x2", [word, i32(0x3F803F80), i32(self.zero)])
        return b.bitcast(b.fadd(b.bitcast(word, F16X2), b.bitcast(i32(self.zero), F16X2)), I32)

    def _sixteenth_minus_zero(self, b: ll.IRBuilder, word: ll.Value) -> ll.Value:
        sixteenth, zero = (v.constant(F16, x, 2) for x in (1 / 16, -64.0 - ZERO_POINT))
        return b.bitcast(v.intrinsic(b, "llvm.fma.v2f16", [b.bitcast(word, F16X2), sixteenth, zero], F16X2), I32)

    def times(self, b: ll.IRBuilder, word: ll.Value, scale: ll.Value) -> ll.Value:
        """The product; the sum with -0 changes nothing."""
        if self.dtype == "bfloat16":
            return emit(b, "fma.rn.bf16x2", [word, scale, i32(-0x7FFF8000)])
        return b.bitcast(b.fmul(b.bitcast(word, F16X2), b.bitcast(scale, F16X2)), I32)


_ARITHMETIC = (
    _Arithmetic("float16", 0x64006400, 0xE407E407),
    _Arithmetic("bfloat16", 0x43004300, 0xC307C307),
)


def paired(place: PrimExpr) -> PrimExpr:
    """Which of a word's codes is at a place of a paired result: codes i and i + 4 are neighbours."""
    return place // 2 + place % 2 * 4


def _row(floats: _Arithmetic, pairs: bool) -> TensorIntrin:
    """``out[i] = (code i of word - 7) * scale``; code 0 is in the lowest bits. pairs: code ``paired(i)`` instead."""
    dtype = floats.dtype

    def semantics(word: te.Tensor, scale: te.Tensor) -> te.Tensor:
        def element(i: Var) -> PrimExpr:
            place = paired(i) if pairs else i
            code = (word[0] >> te.cast(place * 4, "uint32")) & te.const(15, "uint32")
            return te.cast(te.cast(code, "int32") - ZERO_POINT, dtype) * scale[0]

        return te.compute((CODES,), element, name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        word = b.load(address(row, operands, 1), align=4, typ=I32)
        scale = b.bitcast(v.splat(b, b.load(address(row, operands, 2), align=2, typ=I16), 2), I32)
        found = [floats.times(b, pair, scale) for pair in floats.minus_zeros(b, word)]
        if not pairs:
            low = [_halves(b, found[i], found[i + 1], 0x5410) for i in (0, 2)]
            found = [*low, *(_halves(b, found[i], found[i + 1], 0x7632) for i in (0, 2))]
        store(b, row, operands, found)

    operands = (Operand("out", (CODES,), dtype), Operand("word", (1,), "uint32"), Operand("scale", (1,), dtype))
    name = f"cuda.dequantize.q4.{'pairs.' if pairs else ''}{SHORT[dtype]}"
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_80")


def _halves(b: ll.IRBuilder, first: ll.Value, second: ll.Value, selector: int) -> ll.Value:
    """The low or the high halves of two words in one."""
    return emit(b, "llvm.nvvm.prmt", [first, second, i32(selector)])


DEQUANTIZE = tuple(_row(floats, pairs) for floats in _ARITHMETIC for pairs in (False, True))
