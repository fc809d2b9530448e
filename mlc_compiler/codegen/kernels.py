"""Tensor functions to LLVM functions that the whole worker team enters.

Signature: ``void kernel(ptr team, i32 thread, i32 threads, buffers…, scalars…)``. A parallel loop is divided by thread
number; statements outside of parallel loops run on thread 0; top-level statements are separated by barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir as ll

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, IntImm, PrimExpr, Var, is_const
from ..ir.simplify import key
from ..ir.visitor import walk
from ..target import Target
from ..tir.calling import scalar_parameters
from ..tir.nodes import (
    PARALLEL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Allocate,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)
from . import values as v
from .emitter import PORTABLE
from .expressions import CodegenError, ExprEmitter, Lanes
from .team import BARRIER, HIDDEN
from .values import I32, I64, PTR, i32, i64

MAX_STACK_BYTES = 1 << 20


def declare_kernel(module: ll.Module, func: PrimFunc, symbol: str) -> ll.Function:
    """The LLVM function without a body, visible inside the library; buffers do not alias when the function says so."""
    scalars = scalar_parameters(func)
    types = [PTR, I32, I32, *(PTR for _ in func.buffers), *(v.value_type(s.dtype) for s in scalars)]
    fn = ll.Function(module, ll.FunctionType(v.VOID, types), symbol)
    fn.linkage = HIDDEN
    fn.attributes.add("noinline")  # a kernel is called once for each layer; copies of it only cost compile time
    for arg, buffer in zip(fn.args[3:], func.buffers, strict=False):
        if func.attrs.get("tir.noalias"):
            arg.add_attribute("noalias")
        arg.name = buffer.name
    fn.args[0].name, fn.args[1].name, fn.args[2].name = "team", "thread", "threads"
    return fn


def emit_kernel(fn: ll.Function, func: PrimFunc, target: Target = PORTABLE) -> None:
    """Fill in the body of a declared kernel. Raises CodegenError for what has no code on a CPU."""
    _check_loops(func, fn.name)
    entry = fn.append_basic_block("entry")
    builder = ll.IRBuilder(entry)
    emitter = KernelEmitter(builder, fn, target)
    for arg, buffer in zip(fn.args[3:], func.buffers, strict=False):
        emitter.expr.buffers[id(buffer)] = arg
    for arg, var in zip(fn.args[3 + len(func.buffers) :], scalar_parameters(func), strict=True):
        emitter.expr.env[id(var)] = arg
    emitter.team(func.body)
    builder.ret_void()


def _check_loops(func: PrimFunc, name: str) -> None:
    for loop in walk(func.body):
        if isinstance(loop, For) and loop.kind == THREAD:
            raise CodegenError(
                f"loop {loop.var.name!r} is bound to {loop.thread}; a CPU has no such threads",
                where=[f"function {name}"],
                hint="on a CPU, loops run in parallel by Schedule.parallel or T.parallel",
            )


def call_barrier(b: ll.IRBuilder, team: ll.Value, threads: ll.Value) -> None:
    """Wait until all threads of the team are here."""
    barrier = b.module.globals.get(BARRIER)
    if barrier is None:
        barrier = ll.Function(b.module, ll.FunctionType(v.VOID, [PTR, I32]), BARRIER)
        barrier.linkage = HIDDEN
    b.call(barrier, [team, threads])


def has_parallel(stmt: Stmt) -> bool:
    return any(isinstance(n, For) and n.kind == PARALLEL for n in walk(stmt))


class KernelEmitter:
    """Emits statements at the builder's position."""

    def __init__(self, builder: ll.IRBuilder, fn: ll.Function, target: Target):
        self.b = builder
        self.fn = fn
        self.expr = ExprEmitter(builder, target)

    # -- what the whole team runs -------------------------------------------------------------------------------

    def team(self, stmt: Stmt) -> None:
        """A statement that every thread enters."""
        if not has_parallel(stmt):
            with self.b.if_then(self.b.icmp_signed("==", self.fn.args[1], i32(0))):
                self.emit(stmt)
        elif isinstance(stmt, SeqStmt):
            for i, child in enumerate(stmt.stmts):
                if i:
                    self.barrier()
                self.team(child)
        elif isinstance(stmt, For):
            self._team_loop(stmt)
        elif isinstance(stmt, Allocate):
            self._allocate(stmt)
            self.team(stmt.body)
        elif isinstance(stmt, LetStmt):
            self.expr.define(stmt.var, stmt.value)
            self.team(stmt.body)
        elif isinstance(stmt, IfThenElse) and stmt.else_case is None:
            with self.b.if_then(self.expr(stmt.condition)):
                self.team(stmt.then_case)
        else:
            raise CodegenError(f"a parallel loop inside {type(stmt).__name__} has no code")

    def _team_loop(self, loop: For) -> None:
        if loop.kind != PARALLEL:
            with self.loop(loop.var, loop.extent):
                self.team(loop.body)
                self.barrier()
            return
        b = self.b
        extent = self._index(loop.extent)
        thread, threads = (b.sext(a, I64) for a in self.fn.args[1:3])
        start = b.sdiv(b.mul(extent, thread), threads)
        end = b.sdiv(b.mul(extent, b.add(thread, i64(1))), threads)
        self.expr.analyzer.bind(loop.var, loop.extent)
        with self._counted(loop.var, start, end):
            self.emit(loop.body)

    def barrier(self) -> None:
        call_barrier(self.b, self.fn.args[0], self.fn.args[2])

    # -- what one thread runs -----------------------------------------------------------------------------------

    def emit(self, stmt: Stmt) -> None:
        """A statement run by one thread."""
        getattr(self, f"emit_{type(stmt).__name__}")(stmt)

    def emit_SeqStmt(self, stmt: SeqStmt) -> None:
        for child in stmt.stmts:
            self.emit(child)

    def emit_LetStmt(self, stmt: LetStmt) -> None:
        self.expr.define(stmt.var, stmt.value)
        self.emit(stmt.body)

    def emit_Allocate(self, stmt: Allocate) -> None:
        self._allocate(stmt)
        self.emit(stmt.body)

    def emit_Evaluate(self, stmt: Evaluate) -> None:
        self.expr(stmt.value)

    def emit_BufferStore(self, stmt: BufferStore) -> None:
        self.expr.accumulation = stmt.value if _accumulates(stmt) else None
        value = self.expr(stmt.value)
        self.expr.store(stmt.buffer, stmt.indices, value)

    def emit_For(self, loop: For) -> None:
        if loop.kind == VECTORIZED and not is_const(loop.extent, 1):
            self._vectorized(loop)
            return
        with self.loop(loop.var, loop.extent) as latch:
            self.emit(loop.body)
        if loop.kind == UNROLLED:
            latch().set_metadata("llvm.loop", LoopID(self.b.module, "llvm.loop.unroll.full"))

    def emit_While(self, stmt: While) -> None:
        head, body, done = (self.b.append_basic_block(n) for n in ("while", "while.body", "while.end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.expr(stmt.condition), body, done)
        self.b.position_at_end(body)
        self.emit(stmt.body)
        self.b.branch(head)
        self.b.position_at_end(done)

    def emit_IfThenElse(self, stmt: IfThenElse) -> None:
        condition = self.expr(stmt.condition)
        if v.lanes_of(condition) > 1:
            self._masked(condition, stmt)
        elif stmt.else_case is None:
            with self.b.if_then(condition):
                self.emit(stmt.then_case)
        else:
            with self.b.if_else(condition) as (then, otherwise):
                with then:
                    self.emit(stmt.then_case)
                with otherwise:
                    self.emit(stmt.else_case)

    def _masked(self, condition: ll.Value, stmt: IfThenElse) -> None:
        outer = self.expr.mask
        for mask, case in ((condition, stmt.then_case), (self.b.not_(condition), stmt.else_case)):
            if case is not None:
                self.expr.mask = mask if outer is None else self.b.and_(outer, mask)
                self.emit(case)
        self.expr.mask = outer

    def _vectorized(self, loop: For) -> None:
        if not isinstance(loop.extent, IntImm):
            raise CodegenError(f"vectorized loop {loop.var.name!r} needs a constant extent")
        if self.expr.lanes is not None:
            outer = self.expr.lanes.var.name
            raise CodegenError(f"vectorized loop {loop.var.name!r} lies inside the vectorized {outer!r}")
        self.expr.analyzer.bind(loop.var, loop.extent)
        self.expr.lanes = Lanes(loop.var, loop.extent.value)
        self.emit(loop.body)
        self.expr.lanes = None

    def _allocate(self, stmt: Allocate) -> None:
        sizes = [s.value if isinstance(s, IntImm) else None for s in stmt.buffer.shape]
        if None in sizes:
            raise CodegenError(f"scratch buffer {stmt.buffer.name!r} has a symbolic size")
        count = 1
        for s in sizes:
            count *= s  # type: ignore[operator]
        if count * dt.nbytes(stmt.buffer.dtype) > MAX_STACK_BYTES:
            raise CodegenError(f"scratch buffer {stmt.buffer.name!r} takes {count} elements: too many for the stack")
        array = ll.ArrayType(v.storage_type(stmt.buffer.dtype), count)
        with self.b.goto_entry_block():
            slot = v.stack_slot(self.b, array, stmt.buffer.name, align=64)
        self.expr.buffers[id(stmt.buffer)] = slot

    # -- loops --------------------------------------------------------------------------------------------------

    def _index(self, extent: PrimExpr) -> ll.Value:
        return self.expr.convert(self.expr(extent), extent.dtype, "int64")

    @contextmanager
    def loop(self, var: Var, extent: PrimExpr) -> Iterator[Callable[[], ll.Instruction]]:
        """The body of a loop from 0 to ``extent``; gives what tells the branch back, once the body is emitted."""
        self.expr.analyzer.bind(var, extent)
        with self._counted(var, i64(0), self._index(extent)) as latch:
            yield latch

    @contextmanager
    def _counted(self, var: Var, start: ll.Value, end: ll.Value) -> Iterator[Callable[[], ll.Instruction]]:
        b = self.b
        before = b.block
        body, done = b.append_basic_block(f"{var.name}.body"), b.append_basic_block(f"{var.name}.end")
        b.cbranch(b.icmp_signed("<", start, end), body, done)
        b.position_at_end(body)
        counter = b.phi(I64, name=var.name)
        counter.add_incoming(start, before)
        self.expr.env[id(var)] = counter if var.dtype == "int64" else b.trunc(counter, v.value_type(var.dtype))
        branches: list[ll.Instruction] = []
        yield branches.pop
        following = b.add(counter, i64(1), flags=["nsw"])
        counter.add_incoming(following, b.block)
        branches.append(b.cbranch(b.icmp_signed("<", following, end), body, done))
        b.position_at_end(done)


class LoopID(ll.values.MDValue):
    """The metadata node of one loop: distinct from all others, first itself, then an option."""

    def __init__(self, module: ll.Module, option: str):
        super().__init__(module, (module.add_metadata([option]),), str(len(module.metadata)))

    def descr(self, buf: list[str]) -> None:
        buf.append(f"distinct !{{ {self.get_reference()}, {self.operands[0].get_reference()} }}\n")


def _accumulates(stmt: BufferStore) -> bool:
    """Whether this adds to the element that it stores: the order of such sums is free."""
    value = stmt.value
    if not (isinstance(value, BinaryOp) and value.op == "+" and dt.is_float(value.dtype)):
        return False
    return any(
        isinstance(side, BufferLoad) and side.buffer is stmt.buffer and key(side.indices) == key(stmt.indices)
        for side in (value.a, value.b)
    )
