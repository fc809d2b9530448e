"""A minimal back end for a machine without threads or vectors, as an example of a new kind of target.

Kernels are plain functions that run their loops in order; a job calls them one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlc_compiler.backends import Backend, Lowering
from mlc_compiler.codegen import llvm_ir as ll
from mlc_compiler.codegen.host.code import field, function
from mlc_compiler.codegen.host.contexts import FAILED, HEAD_BYTES, ContextArgument, HostRuntime
from mlc_compiler.codegen.host.jobs import JobEmitter
from mlc_compiler.codegen.host.module import HostModule, new_module
from mlc_compiler.codegen.host.packed_calls import TensorArgument
from mlc_compiler.codegen.instructions import on_vectors
from mlc_compiler.codegen.statements import declare_kernel, emit_function
from mlc_compiler.codegen.values import I32, PTR, VOID, i32
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import Rewriter
from mlc_compiler.optimization import Optimization
from mlc_compiler.passes.base import Pass
from mlc_compiler.relax.nodes import Function
from mlc_compiler.schedules.rule import Rule, analyse
from mlc_compiler.target import Attribute, Target, TargetKind
from mlc_compiler.tir import te
from mlc_compiler.tir.intrinsics import Operand, TensorIntrin
from mlc_compiler.tir.nodes import SERIAL, For, PrimFunc, Stmt
from mlc_compiler.tir.schedule import Schedule


def complete(given: Mapping[str, Any]) -> Mapping[str, Attribute]:
    return {"model": "plain", **given}


TOY_KIND = TargetKind("toy", (), {"model": str}, complete, "model", lambda target, name: name == "add4")

# -- its instruction, and what uses it ---------------------------------------------------------------------------------

ADD4 = TensorIntrin(
    "toy.add4",
    tuple(Operand(name, (4,), "float32") for name in ("out", "a", "b")),
    lambda a, b: te.compute((4,), lambda i: a[i] + b[i], name="out"),
    {"toy": on_vectors(lambda b, x, y: b.fadd(x, y))},
    requires="add4",
)


class AddFours(Rule):
    """A sum of two tensors, four elements at a time. ``tensorize`` rejects everything else."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or len(blocks.in_order) != 1:
            return None
        s = Schedule(func)
        _, four = s.split(s.get_loops(blocks.last.name)[-1], [None, 4])
        s.tensorize(four, ADD4.name)
        return s


class Sequential(Rule):
    """Leaves all loops as they are."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        return Schedule(func)


@dataclass(frozen=True)
class SerialLoops(Pass):
    """Replace parallel, vectorized and unrolled loops, which users may have written, by serial ones."""

    name = "serial-loops"

    def run(self, mod: IRModule) -> IRModule:
        functions = mod.of_type(PrimFunc).items()
        return mod.updated({name: replace(func, body=_Serial()(func.body)) for name, func in functions})


class _Serial(Rewriter):
    def rewrite_For(self, node: For) -> Stmt:
        return replace(self.rewrite_children(node), kind=SERIAL)


# -- code --------------------------------------------------------------------------------------------------------------

JOB_TYPE = ll.FunctionType(VOID, [PTR, PTR])


class Job(JobEmitter):
    """``void job(ptr context, ptr frame)``"""

    def kernel_call(self, name: str, args: list[ll.Value]) -> None:
        self.call(name, args)

    def packed_call(self, name: str, args: list[TensorArgument | ll.Value]) -> None:
        status = self.packed.emit(self.b, self.exprs, name, args)
        with self.b.if_then(self.b.icmp_signed("!=", status, i32(0)), likely=False):
            self.b.store(i32(1), field(self.b, self.context, FAILED))
            self.b.ret_void()


class InOrder(HostRuntime):
    """Contexts that hold only a workspace; jobs run on the calling thread."""

    argument = ContextArgument("num_threads", 1, 256, "the system refused memory")
    context_bytes = HEAD_BYTES

    def __init__(self, host: HostModule, mod: IRModule):
        super().__init__(host)
        self.kernels = {name: declare_kernel(host.module, f, name) for name, f in mod.of_type(PrimFunc).items()}

    def define(self) -> None:
        self.start, b = function(self.module, "toy_start", I32, [PTR, I32])
        b.ret(i32(1))
        self.stop, b = function(self.module, "toy_stop", VOID, [PTR])
        b.ret_void()

    def emit_job(self, name: str, func: Function) -> ll.Function:
        fn = ll.Function(self.module, JOB_TYPE, f"{name}.job")
        Job(fn, func, self.packed, self.kernels).emit()
        return fn

    def execute(self, b: ll.IRBuilder, context: ll.Value, job: ll.Value, frame: ll.Value) -> None:
        b.call_pointer(job, JOB_TYPE, [context, frame])


class ToyBackend(Backend):
    kind = TOY_KIND
    instructions = (ADD4,)

    def lowering(self, target: Target, optimization: Optimization) -> Lowering:
        return Lowering(rules=(AddFours(), Sequential()), loops=(SerialLoops(),))

    def host_target(self, target: Target) -> Target:
        return Target("cpu")

    def emit_kernels(self, mod: IRModule, target: Target) -> Iterator[str]:
        for name, func in mod.of_type(PrimFunc).items():
            module = new_module(self.host_target(target))
            emit_function(declare_kernel(module, func, name), func, target)
            yield str(module)

    def host_runtime(self, host: HostModule, mod: IRModule, target: Target) -> InOrder:
        return InOrder(host, mod)
