"""Instructions that change no values: barriers, fences, grid dependencies, prefetches to the second-level cache."""

from __future__ import annotations

from ....codegen import llvm_ir as ll
from ....codegen.instructions import Operands
from ....codegen.values import I1, I32, I64
from ....tir.intrinsics import Operand, TensorIntrin
from .nvvm import INSTRUCTIONS, emit
from .operands import address, as_i32
from .scalar import COUNTER

MBARRIER = Operand("bar", (1,), "uint64", scope="shared")
"""An mbarrier object: 8 bytes of shared memory (PTX ISA, "mbarrier")."""

VECTORS = Operand("source", (16,), "uint8", scope="global")
"""The first of ``nbytes`` bytes of any dtype; address and number are multiples of 16."""


def control_row(
    name: str, intrinsic: str, *, places: tuple[Operand, ...] = (), scalars: tuple[str, ...] = (), lanes: int = 1
) -> TensorIntrin:
    """A row for a call of ``intrinsic`` with the addresses of ``places``, then the scalars."""

    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        addresses = [address(row, operands, i) for i in range(len(places))]
        emit(b, intrinsic, [*addresses, *(as_i32(b, operands.scalars[s]) for s in scalars)])

    return TensorIntrin(name, places, None, {"cuda": code}, INSTRUCTIONS[intrinsic].sm, scalars=scalars, lanes=lanes)


def _fence_row(name: str, order: str) -> TensorIntrin:
    def code(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
        b.fence(order, "device")

    return TensorIntrin(name, (), None, {"cuda": code}, "sm_70")


def _prefetch(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
    no_hint, off = ll.Constant(I64, 0), ll.Constant(I1, 0)
    nbytes = as_i32(b, operands.scalars["nbytes"])
    emit(b, "llvm.nvvm.cp.async.bulk.prefetch.L2", [address(row, operands, 0), nbytes, no_hint, off])


def _wait(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
    """Emit a loop around try_wait, which returns false after a time limit of the hardware.

    Two rows use it: ``wait``, for all threads of a block, and ``acquire``, for the threads that are about to overwrite
    a buffer that the others have read.
    """
    bar, parity = address(row, operands, 0), as_i32(b, operands.scalars["parity"])
    again, done = b.append_basic_block("mbarrier.wait"), b.append_basic_block("mbarrier.done")
    b.branch(again)
    b.position_at_end(again)
    complete = emit(b, "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta", [bar, parity])
    b.cbranch(complete, done, again)
    b.position_at_end(done)


def _wait_for_count(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> None:
    """Emit relaxed loads until the counter reaches the value, then an acquire fence."""
    counter, count = address(row, operands, 0), as_i32(b, operands.scalars["count"])
    again, done = b.append_basic_block("counter.wait"), b.append_basic_block("counter.done")
    b.branch(again)
    b.position_at_end(again)
    found = b.load_atomic(counter, "monotonic", 4, typ=I32)
    b.cbranch(b.icmp_unsigned("<", found, count), again, done)
    b.position_at_end(done)
    b.fence("acquire", "device")


def _mbarrier_row(name: str, intrinsic: str, *scalars: str) -> TensorIntrin:
    return control_row(f"cuda.mbarrier.{name}", f"llvm.nvvm.{intrinsic}", places=(MBARRIER,), scalars=scalars)


CONTROL: tuple[TensorIntrin, ...] = (
    _mbarrier_row("init", "mbarrier.init.shared", "count"),
    _mbarrier_row("arrive", "mbarrier.arrive.shared"),
    _mbarrier_row("arrive_expect_tx", "mbarrier.arrive.expect.tx.scope.cta.space.cta", "bytes"),
    TensorIntrin("cuda.mbarrier.wait", (MBARRIER,), None, {"cuda": _wait}, "sm_90", scalars=("parity",)),
    TensorIntrin("cuda.mbarrier.acquire", (MBARRIER,), None, {"cuda": _wait}, "sm_90", scalars=("parity",)),
    TensorIntrin("cuda.counter.wait", (COUNTER,), None, {"cuda": _wait_for_count}, "sm_70", scalars=("count",)),
    control_row("cuda.fence.mbarrier_init", "llvm.nvvm.fence.mbarrier_init.release.cluster"),
    control_row("cuda.fence.proxy_async", "llvm.nvvm.fence.proxy.async.shared_cta"),
    _fence_row("cuda.fence.acquire", "acquire"),
    _fence_row("cuda.fence.release", "release"),
    control_row(
        "cuda.barrier.sync", "llvm.nvvm.barrier.cta.sync.aligned.count", scalars=("barrier", "threads"), lanes=32
    ),
    control_row(
        "cuda.barrier.arrive", "llvm.nvvm.barrier.cta.arrive.aligned.count", scalars=("barrier", "threads"), lanes=32
    ),
    TensorIntrin("cuda.prefetch", (VECTORS,), None, {"cuda": _prefetch}, "sm_90", scalars=("nbytes",), hint=True),
    control_row("cuda.griddep.wait", "llvm.nvvm.griddepcontrol.wait"),
    control_row("cuda.griddep.launch_dependents", "llvm.nvvm.griddepcontrol.launch.dependents"),
)
