"""Conversion of four bytes to four float32 in few instructions: conversions of single bytes run at a quarter rate.

int8: a permutation puts each byte, plus 128, into the mantissa of ``2^23``, from which the bias is subtracted. 8-bit
floats: two elements are converted to float16 at once (PTX ISA, ``cvt.rn.f16x2.e4m3x2``).
"""

from __future__ import annotations

from ....codegen import llvm_ir as ll
from ....codegen.instructions import Operands
from ....codegen.values import F32, I16, I32, i32
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import F16X2, emit
from .operands import SHORT, address, store

BYTES = 4
SIGN_BITS = 0x80808080
TWO_TO_23 = 0x4B000000
BIAS = 2.0**23 + 128


def _from_int8(b: ll.IRBuilder, word: ll.Value) -> list[ll.Value]:
    codes = b.xor(word, ll.Constant(I32, SIGN_BITS))
    found = [emit(b, "llvm.nvvm.prmt", [codes, i32(TWO_TO_23), i32(0x7540 + i)]) for i in range(BYTES)]
    return [b.fsub(b.bitcast(bits, F32), ll.Constant(F32, BIAS)) for bits in found]


def _from_float8(b: ll.IRBuilder, word: ll.Value) -> list[ll.Value]:
    halves = [b.trunc(word, I16), b.trunc(b.lshr(word, i32(16)), I16)]
    pairs = [b.bitcast(emit(b, "cvt.rn.f16x2.e4m3x2", [half]), F16X2) for half in halves]
    return [b.fpext(b.extract_element(pair, i32(i)), F32) for pair in pairs for i in range(2)]


def _row(dtype: str, sm: str) -> TensorIntrin:
    """``out = x`` of four elements of a dtype of 8 bits."""
    widened = _from_int8 if dtype == "int8" else _from_float8

    def semantics(x: te.Tensor) -> te.Tensor:
        return te.compute((BYTES,), lambda i: te.f32(x[i]), name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        word = b.load(address(row, operands, 1), align=1, typ=I32)
        store(b, row, operands, widened(b, word))

    operands = (Operand("out", (BYTES,), "float32"), Operand("x", (BYTES,), dtype))
    return TensorIntrin(f"cuda.cvt.f32x4.{SHORT[dtype]}x4", operands, semantics, {"cuda": code}, sm)


WIDENING = (_row("int8", "sm_70"), _row("float8_e4m3fn", "sm_90"))
