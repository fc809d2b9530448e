"""Emit statements of one thread as LLVM code, and tensor functions as plain functions that one thread runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, IntImm, PrimExpr, Var, is_const
from ..ir.simplify import key
from ..target import Target
from ..tir.calling import scalar_parameters
from ..tir.nodes import (
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
from . import llvm_ir as ll
from . import values as v
from .arithmetic import CodegenError
from .emitter import Lanes
from .expressions import ExprEmitter
from .host.code import HIDDEN
from .loops import rotated_loop, while_loop
from .values import PTR, i64

MAX_STACK_BYTES = 1 << 20
ORDERED_SUMS = "tir.ordered_sums"
"""Attribute of tensor functions whose floating-point sums must not be reassociated, for bitwise equal results."""


def declare_function(
    module: ll.Module, func: PrimFunc, symbol: str, leading: Sequence[tuple[str, ll.Type]] = ()
) -> ll.Function:
    """Declare the LLVM function of a tensor function: ``void (leading…, buffers…, scalars…)``.

    leading: names and types of additional parameters. Buffers are ``noalias`` if the function has ``tir.noalias``.
    """
    scalars = scalar_parameters(func)
    types = [*(t for _, t in leading), *(PTR for _ in func.buffers), *(v.value_type(s.dtype) for s in scalars)]
    fn = ll.Function(module, ll.FunctionType(v.VOID, types), symbol)
    for arg, (name, _) in zip(fn.args, leading, strict=False):
        arg.rename(name)
    for arg, buffer in zip(fn.args[len(leading) :], func.buffers, strict=False):
        if func.attrs.get("tir.noalias"):
            arg.attributes.add("noalias")
        arg.rename(buffer.name)
    return fn


def declare_kernel(
    module: ll.Module, func: PrimFunc, name: str, leading: Sequence[tuple[str, ll.Type]] = ()
) -> ll.Function:
    """Declare the LLVM function of the tensor function ``name``, with hidden visibility."""
    fn = declare_function(module, func, f"kernel.{name}", leading)
    fn.linkage = HIDDEN
    fn.attributes.add("noinline")  # called once per layer: inlining only costs compile time
    return fn


def emit_function(fn: ll.Function, func: PrimFunc, target: Target) -> None:
    """Fill in the body of a declared function: all loops run in order, on the caller's thread."""
    StmtEmitter(fn, target).function(func)


class StmtEmitter:
    """Emits a tensor function into ``fn``, whose last parameters are its buffers and scalars."""

    def __init__(self, fn: ll.Function, target: Target):
        self.fn = fn
        self.b = ll.IRBuilder(fn.append_basic_block("entry"))
        self.expr = ExprEmitter(self.b, target)
        self._reassociates = True

    def function(self, func: PrimFunc) -> None:
        """Emit the body. Raises CodegenError for unsupported statements.

        Sums of floats may be reassociated, unless the function has the attribute ``ORDERED_SUMS``.
        """
        self._reassociates = not func.attrs.get(ORDERED_SUMS)
        scalars = scalar_parameters(func)
        args = self.fn.args[len(self.fn.args) - len(func.buffers) - len(scalars) :]
        for arg, buffer in zip(args, func.buffers, strict=False):
            self.expr.buffers[id(buffer)] = arg
        for arg, var in zip(args[len(func.buffers) :], scalars, strict=True):
            self.expr.env[id(var)] = arg
        self.body(func.body)
        self.b.ret_void()

    def body(self, stmt: Stmt) -> None:
        """Emit the function's outermost statement."""
        self.emit(stmt)

    def emit(self, stmt: Stmt) -> None:
        """Emit a statement that one thread runs."""
        getattr(self, f"emit_{type(stmt).__name__}")(stmt)

    def emit_SeqStmt(self, stmt: SeqStmt) -> None:
        for child in stmt.stmts:
            self.emit(child)

    def emit_LetStmt(self, stmt: LetStmt) -> None:
        self.expr.define(stmt.var, stmt.value)
        self.emit(stmt.body)

    def emit_Allocate(self, stmt: Allocate) -> None:
        self.allocate(stmt)
        self.emit(stmt.body)

    def emit_Evaluate(self, stmt: Evaluate) -> None:
        self.expr(stmt.value)

    def emit_BufferStore(self, stmt: BufferStore) -> None:
        self.expr.accumulation = stmt.value if self._reassociates and _accumulates(stmt) else None
        value = self.expr(stmt.value)
        self.expr.store(stmt.buffer, stmt.indices, value)

    def emit_For(self, loop: For) -> None:
        self.check_loop(loop)
        if loop.kind == VECTORIZED and not is_const(loop.extent, 1):
            self._vectorized(loop)
            return
        with self.loop(loop.var, loop.extent) as latch:
            self.emit(loop.body)
        if loop.kind == UNROLLED:
            latch().set_metadata("llvm.loop", self.b.module.add_loop_metadata(["llvm.loop.unroll.full"]))

    def check_loop(self, loop: For) -> None:
        """Raise CodegenError for a loop that is bound to GPU threads."""
        if loop.kind == THREAD:
            raise CodegenError(
                f"loop {loop.var.name!r} is bound to {loop.thread}; a CPU has no such threads",
                where=[f"function {self.fn.name}"],
                hint="on a CPU, loops run in parallel by Schedule.parallel or T.parallel",
            )

    def emit_While(self, stmt: While) -> None:
        def body() -> list[ll.Value]:
            self.emit(stmt.body)
            return []

        while_loop(self.b, "while", [], lambda: self.expr(stmt.condition), body)

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
        self.expr.vector_indices.clear()

    def allocate(self, stmt: Allocate) -> None:
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
            slot = self.b.alloca(array, stmt.buffer.name, align=64)
        self.expr.buffers[id(stmt.buffer)] = slot

    # -- loops --------------------------------------------------------------------------------------------------

    def index(self, extent: PrimExpr) -> ll.Value:
        return self.expr.convert(self.expr(extent), extent.dtype, "int64")

    @contextmanager
    def loop(self, var: Var, extent: PrimExpr) -> Iterator[Callable[[], ll.Terminator]]:
        """A loop from 0 to ``extent`` around the ``with`` body; yields a function that returns its latch later."""
        self.expr.analyzer.bind(var, extent)
        with self.counted(var, i64(0), self.index(extent)) as latch:
            yield latch

    @contextmanager
    def counted(self, var: Var, start: ll.Value, end: ll.Value) -> Iterator[Callable[[], ll.Terminator]]:
        with rotated_loop(self.b, var.name, start, end) as (counter, latch):
            self.expr.env[id(var)] = counter if var.dtype == "int64" else self.b.trunc(counter, v.value_type(var.dtype))
            yield latch


def _accumulates(stmt: BufferStore) -> bool:
    """Whether a store adds to its own element, so that the sum may be reassociated."""
    value = stmt.value
    if not (isinstance(value, BinaryOp) and value.op == "+" and dt.is_float(value.dtype)):
        return False
    return any(
        isinstance(side, BufferLoad) and side.buffer is stmt.buffer and key(side.indices) == key(stmt.indices)
        for side in (value.a, value.b)
    )
