"""Tensor functions to LLVM functions that the whole worker team enters.

Signature: ``void kernel(ptr team, i32 thread, i32 threads, buffers…, scalars…)``. A parallel loop is divided by thread
number, or, with the annotation ``schedule: "dynamic"``, its iterations are claimed one by one by whichever thread is
free. Statements outside of parallel loops run on thread 0; top-level statements are separated by barriers.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir as ll

from ...codegen import values as v
from ...codegen.arithmetic import CodegenError
from ...codegen.host.code import HIDDEN
from ...codegen.host.module import new_module
from ...codegen.loops import while_loop
from ...codegen.statements import StmtEmitter, declare_kernel
from ...codegen.values import I32, I64, PTR, i32, i64
from ...ir.module import IRModule
from ...ir.visitor import walk
from ...target import Target
from ...tir.nodes import PARALLEL, Allocate, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt

INSTRUCTIONS_IN_A_MODULE = 1000  # enough that modules cost nothing, few enough that every core gets some
BARRIER, NEXT_LOOP, CLAIM = "mlc_team_barrier", "mlc_team_next_loop", "mlc_team_claim"
DYNAMIC = "dynamic"
TEAM_PARAMETERS = (("team", PTR), ("thread", I32), ("threads", I32))


def emit_kernels(mod: IRModule, target: Target) -> Iterator[str]:
    """The tensor functions of a module as some LLVM modules, which do not depend on the machine that compiles."""
    module, instructions = new_module(target), 0
    for name, func in mod.of_type(PrimFunc).items():
        kernel = declare_kernel(module, func, name, TEAM_PARAMETERS)
        TeamEmitter(kernel, target).function(func)
        instructions += sum(len(block.instructions) for block in kernel.blocks)
        if instructions > INSTRUCTIONS_IN_A_MODULE:
            yield str(module)
            module, instructions = new_module(target), 0
    if instructions:
        yield str(module)


def call_barrier(b: ll.IRBuilder, team: ll.Value, threads: ll.Value) -> None:
    """Wait until all threads of the team are here."""
    b.call(runtime_function(b.module, BARRIER, v.VOID, [PTR, I32]), [team, threads])


def runtime_function(module: ll.Module, name: str, result: ll.Type, args: list[ll.Type]) -> ll.Function:
    """A function that the host's module of the library defines, see ``team.py``."""
    fn = module.globals.get(name)
    if fn is None:
        fn = ll.Function(module, ll.FunctionType(result, args), name)
        fn.linkage = HIDDEN
    return fn


def has_parallel(stmt: Stmt) -> bool:
    return any(isinstance(n, For) and n.kind == PARALLEL for n in walk(stmt))


class TeamEmitter(StmtEmitter):
    """Emits a tensor function for the worker team."""

    def body(self, stmt: Stmt) -> None:
        """A statement that every thread of the team enters."""
        if not has_parallel(stmt):
            with self.b.if_then(self.b.icmp_signed("==", self.fn.args[1], i32(0))):
                self.emit(stmt)
        elif isinstance(stmt, SeqStmt):
            for i, child in enumerate(stmt.stmts):
                if i:
                    self.barrier()
                self.body(child)
        elif isinstance(stmt, For):
            self._team_loop(stmt)
        elif isinstance(stmt, Allocate):
            self.allocate(stmt)
            self.body(stmt.body)
        elif isinstance(stmt, LetStmt):
            self.expr.define(stmt.var, stmt.value)
            self.body(stmt.body)
        elif isinstance(stmt, IfThenElse) and stmt.else_case is None:
            with self.b.if_then(self.expr(stmt.condition)):
                self.body(stmt.then_case)
        else:
            raise CodegenError(f"a parallel loop inside {type(stmt).__name__} has no code")

    def _team_loop(self, loop: For) -> None:
        self.check_loop(loop)
        if loop.kind != PARALLEL:
            with self.loop(loop.var, loop.extent):
                self.body(loop.body)
                self.barrier()
            return
        extent = self.index(loop.extent)
        self.expr.analyzer.bind(loop.var, loop.extent)
        if loop.annotations.get("schedule") == DYNAMIC:
            self._claimed(loop, extent)
        else:
            self._divided(loop, extent)

    def _divided(self, loop: For, extent: ll.Value) -> None:
        b = self.b
        thread, threads = (b.sext(a, I64) for a in self.fn.args[1:3])
        start = b.sdiv(b.mul(extent, thread), threads)
        end = b.sdiv(b.mul(extent, b.add(thread, i64(1))), threads)
        with self.counted(loop.var, start, end):
            self.emit(loop.body)

    def _claimed(self, loop: For, extent: ll.Value) -> None:
        """Iterations in the order in which they are claimed; the number of this loop tells it from the ones before."""
        b, (team, thread) = self.b, self.fn.args[:2]
        number = b.call(runtime_function(b.module, NEXT_LOOP, I32, [PTR, I32]), [team, thread])
        claim = runtime_function(b.module, CLAIM, I64, [PTR, I32, I64])

        def next_iteration() -> ll.Value:
            return b.call(claim, [team, number, extent])

        def run(index: ll.Value) -> list[ll.Value]:
            self.expr.env[id(loop.var)] = index if loop.var.dtype == "int64" else b.trunc(index, I32)
            self.emit(loop.body)
            return [next_iteration()]

        while_loop(b, loop.var.name, [next_iteration()], lambda index: b.icmp_signed(">=", index, i64(0)), run)

    def barrier(self) -> None:
        call_barrier(self.b, self.fn.args[0], self.fn.args[2])
