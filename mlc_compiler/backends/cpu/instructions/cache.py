"""Prefetch instructions."""

from __future__ import annotations

from functools import partial

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import Operands
from ....tir.intrinsics import Operand, TensorIntrin

READ, DATA = 0, 1  # arguments of llvm.prefetch
LOCALITY = {1: 3, 2: 2}  # its argument for a level of cache


def _prefetch(b: ll.IRBuilder, row: TensorIntrin, operands: Operands, level: int) -> None:
    arguments = [operands.addresses[0], *(ll.Constant(v.I32, n) for n in (READ, LOCALITY[level], DATA))]
    v.intrinsic(b, "llvm.prefetch.p0", arguments, ll.VoidType())


def _hint(name: str, level: int) -> TensorIntrin:
    """Prefetch the cache line at an address, of any dtype, to a level of cache (LLVM ``llvm.prefetch``)."""
    return TensorIntrin(
        name, (Operand("line", (1,), "uint8"),), None, {"cpu": partial(_prefetch, level=level)}, hint=True
    )


PREFETCH, PREFETCH_L2 = _hint("cpu.prefetch", 1), _hint("cpu.prefetch.l2", 2)
