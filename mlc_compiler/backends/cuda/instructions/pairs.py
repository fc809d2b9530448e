"""Arithmetic on two 16-bit floats in a register of 32 bits."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.values import I32, i32
from .nvvm import F16X2, emit


@dataclass(frozen=True)
class Pairs:
    """Operations of one dtype on words that hold two floats; each is rounded once.

    mantissa: bits m of the dtype's mantissa. magic: 2 ** m, whose unit in the last place is 1: an integer below 2 ** m
    in its lowest bits is added to it.
    """

    dtype: str
    mantissa: int

    @property
    def magic(self) -> int:
        return 1 << self.mantissa

    def constant(self, value: float) -> ll.Constant:
        """A word with a number twice, which the dtype must represent exactly."""
        number = np.float32(value).astype(np.float16 if self.dtype == "float16" else ml_dtypes.bfloat16)
        assert float(number) == value
        return i32(int(number.view(np.uint16)) * 0x10001)

    def fma(self, b: ll.IRBuilder, x: ll.Value, y: ll.Value, z: ll.Value) -> ll.Value:
        """``x * y + z``"""
        if self.dtype == "bfloat16":
            return emit(b, "fma.rn.bf16x2", [x, y, z])
        return b.bitcast(v.intrinsic(b, "llvm.fma.v2f16", [b.bitcast(a, F16X2) for a in (x, y, z)], F16X2), I32)

    def plus(self, b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
        if self.dtype == "bfloat16":
            return self.fma(b, x, self.constant(1), y)
        return b.bitcast(b.fadd(b.bitcast(x, F16X2), b.bitcast(y, F16X2)), I32)

    def times(self, b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
        """``x * y``; in bfloat16 as ``x * y + -0``, which is equal."""
        if self.dtype == "bfloat16":
            return self.fma(b, x, y, self.constant(-0.0))
        return b.bitcast(b.fmul(b.bitcast(x, F16X2), b.bitcast(y, F16X2)), I32)


PAIRS = (Pairs("float16", 10), Pairs("bfloat16", 7))


def permute(b: ll.IRBuilder, first: ll.Value, second: ll.Value, selector: int | ll.Value) -> ll.Value:
    """Select four bytes of two words (PTX ISA, "prmt"): 0 to 3 are those of the first, 4 to 7 those of the second."""
    return emit(b, "llvm.nvvm.prmt", [first, second, i32(selector) if isinstance(selector, int) else selector])
