"""Prefetch instructions."""

from __future__ import annotations

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import Operands
from ....tir.intrinsics import Operand, TensorIntrin

READ, ALL_LEVELS, DATA = 0, 3, 1  # arguments of llvm.prefetch


def _prefetch(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
    arguments = [operands.addresses[0], *(ll.Constant(v.I32, n) for n in (READ, ALL_LEVELS, DATA))]
    v.intrinsic(b, "llvm.prefetch.p0", arguments, ll.VoidType())


PREFETCH = TensorIntrin("cpu.prefetch", (Operand("line", (1,), "uint8"),), None, {"cpu": _prefetch}, hint=True)
"""Prefetch the cache line at an address, of any dtype, to the L1 cache (LLVM ``llvm.prefetch``)."""
