"""Jobs of the worker team: every thread runs the whole job, kernels divide their parallel loops over the threads."""

from __future__ import annotations

from collections.abc import Mapping

from ...codegen import llvm_ir as ll
from ...codegen.host.code import field, store_atomic
from ...codegen.host.contexts import FAILED
from ...codegen.host.jobs import JobEmitter
from ...codegen.host.packed_calls import PackedCalls, TensorArgument
from ...codegen.values import I32, i32
from ...relax.nodes import Function
from .kernels import begin_call, call_barrier, end_call

BARRIER_CALL = "builtin.barrier"


class TeamJob(JobEmitter):
    """``void job(ptr team, i32 thread, i32 threads, ptr frame)``"""

    def __init__(self, fn: ll.Function, func: Function, packed: PackedCalls, kernels: Mapping[str, ll.Function]):
        super().__init__(fn, func, packed, kernels)
        self.packed_calls = 0

    def kernel_call(self, name: str, args: list[ll.Value]) -> None:
        self.call(name, [*self.fn.args[:3], *args])

    def builtin(self, name: str) -> None:
        if name == BARRIER_CALL:
            call_barrier(self.b, self.context, self.fn.args[1])
        else:
            super().builtin(name)

    def packed_call(self, name: str, args: list[TensorArgument | ll.Value]) -> None:
        """Emit a call that thread 0 makes, then a barrier; all threads return from the job if the call fails.

        To the other threads, the call is a loop of one iteration that they cannot claim.
        """
        self.packed_calls += 1
        b, number, thread = self.b, i32(self.packed_calls), self.fn.args[1]
        failed_at = field(b, self.context, FAILED)
        begin_call(b, self.context, thread)
        with b.if_then(b.icmp_signed("==", thread, i32(0))):
            status = self.packed.emit(b, self.exprs, name, args)
            with b.if_then(b.icmp_signed("!=", status, i32(0)), likely=False):
                store_atomic(b, number, failed_at)
            end_call(b, self.context)
        call_barrier(b, self.context, thread)
        failed = b.load_atomic(failed_at, "acquire", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("==", failed, number), likely=False):
            b.ret_void()
