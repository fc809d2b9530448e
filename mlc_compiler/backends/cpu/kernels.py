"""Tensor functions to LLVM functions that every thread of the worker team calls.

Signature: ``void kernel(ptr team, i32 thread, i32 threads, buffers…, scalars…)``. A parallel loop is divided by thread
number; with the annotation ``schedule: "dynamic"``, idle threads claim its iterations one by one. Statements outside of
parallel loops run on thread 0; top-level statements are separated by barriers.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir as ll

from ...codegen import values as v
from ...codegen.arithmetic import CodegenError
from ...codegen.host.code import HIDDEN
from ...codegen.host.module import split_modules
from ...codegen.loops import while_loop
from ...codegen.statements import StmtEmitter, declare_kernel
from ...codegen.values import I32, I64, PTR, i32, i64
from ...ir.module import IRModule
from ...ir.visitor import walk
from ...target import Target
from ...tir.nodes import PARALLEL, Allocate, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt

INSTRUCTIONS_IN_A_MODULE = 1000  # amortizes the cost of a module, and leaves modules for every core
BARRIER, NEXT_LOOP, CLAIM = "mlc_team_barrier", "mlc_team_next_loop", "mlc_team_claim"
DYNAMIC = "dynamic"
TEAM_PARAMETERS = (("team", PTR), ("thread", I32), ("threads", I32))


def emit_kernels(mod: IRModule, target: Target) -> Iterator[str]:
    """The tensor functions of a module as LLVM modules."""

    def emit(module: ll.Module, name: str, func: PrimFunc) -> ll.Function:
        kernel = declare_kernel(module, func, name, TEAM_PARAMETERS)
        TeamEmitter(kernel, target).function(func)
        return kernel

    funcs = mod.of_type(PrimFunc).items()
    return (str(module) for module, _ in split_modules(funcs, target, INSTRUCTIONS_IN_A_MODULE, emit))


def call_barrier(b: ll.IRBuilder, team: ll.Value, threads: ll.Value) -> None:
    """Emit a barrier of all threads of the team."""
    b.call(runtime_function(b.module, BARRIER, v.VOID, [PTR, I32]), [team, threads])


def runtime_function(module: ll.Module, name: str, result: ll.Type, args: list[ll.Type]) -> ll.Function:
    """Declare a function that the host module defines, see ``team.py``."""
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
        """Emit a statement that every thread of the team reaches; without parallel loops, thread 0 runs it."""
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
        """Claim iterations until none is left; the loop's number identifies it in the shared counter."""
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
