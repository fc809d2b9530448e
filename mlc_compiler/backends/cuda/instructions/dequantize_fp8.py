"""Conversion of float8 weights to 16-bit floats, four of a word at a time.

From ``sm_90`` on an instruction converts float8_e4m3fn to float16. Other conversions shift sign, exponent and mantissa
to their places in the wider type and multiply by a power of two to correct the exponent bias, which is exact for finite
numbers, also subnormal ones. Codes of infinity and NaN become finite numbers, except from float8_e5m2 to float16, whose
upper half it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen import llvm_ir as ll
from ....codegen.conversions import NARROW
from ....codegen.instructions import Operands
from ....codegen.values import I16, i32
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from ..machine import capability
from .dequantize import Unpacking
from .nvvm import emit
from .operands import SHORT, load, store
from .pairs import PAIRS, Pairs, permute

CODES = 4  # of a word
CONVERTS = 90  # the lowest compute capability, times 10, with ``cvt.rn.f16x2.e4m3x2`` in its lowest PTX version
_BIAS = {"float16": 15, "bfloat16": 127}
_EXPONENT = {"float16": 5, "bfloat16": 8}


def _moved(b: ll.IRBuilder, floats: Pairs, dtype: str, word: ll.Value) -> list[ll.Value]:
    """The numbers of a word as pairs, by arithmetic on bits."""
    narrow = NARROW[dtype]
    upper = [permute(b, word, i32(0), s) for s in (0x1404, 0x3424)]
    shift = _EXPONENT[floats.dtype] - narrow.exponent
    if not shift:
        return upper
    factor = floats.constant(2.0 ** (_BIAS[floats.dtype] - narrow.bias))
    return [floats.times(b, _shifted(b, pair, shift), factor) for pair in upper]


def _shifted(b: ll.IRBuilder, pair: ll.Value, shift: int) -> ll.Value:
    """Shift exponents and mantissas, but not the signs, right."""
    rest = b.and_(b.lshr(pair, i32(shift)), i32((0x7F00 >> shift) * 0x10001))
    return b.or_(b.and_(pair, i32(0x80008000)), rest)


def _converted(b: ll.IRBuilder, word: ll.Value) -> list[ll.Value]:
    """The numbers of a word in float8_e4m3fn as pairs of float16."""
    halves = (b.trunc(word, I16), b.trunc(b.lshr(word, i32(16)), I16))
    return [emit(b, "cvt.rn.f16x2.e4m3x2", [half]) for half in halves]


def _row(floats: Pairs, dtype: str, hardware: bool) -> TensorIntrin:
    """``out[i] = codes[i]``; see the module for infinities and NaN."""

    def semantics(codes: te.Tensor) -> te.Tensor:
        return te.compute((CODES,), lambda i: te.cast(codes[i], floats.dtype), name="out")

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        (word,) = load(b, row, operands, 1)
        found: Sequence[ll.Value] = _converted(b, word) if hardware else _moved(b, floats, dtype, word)
        store(b, row, operands, found)

    name = f"cuda.dequantize.{SHORT[dtype]}{'' if hardware else '.bits'}.{SHORT[floats.dtype]}"
    operands = (Operand("out", (CODES,), floats.dtype), Operand("codes", (CODES,), dtype))
    return TensorIntrin(name, operands, semantics, {"cuda": code}, "sm_90" if hardware else "sm_80")


def float8_unpacking(dtype: str, to: str, arch: str) -> Unpacking:
    """The unpacking of float8 codes to 16-bit floats that is available on an architecture."""
    converts = (dtype, to) == ("float8_e4m3fn", "float16") and capability(arch) >= CONVERTS
    return Unpacking(f"{SHORT[dtype]}{'' if converts else '.bits'}", CODES, dtype, CODES, scaled=False)


DEQUANTIZE_FLOAT8 = (
    _row(PAIRS[0], "float8_e4m3fn", hardware=True),
    *(_row(floats, dtype, hardware=False) for floats in PAIRS for dtype in ("float8_e4m3fn", "float8_e5m2")),
)
