"""Verification of tensor functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import (
    BINARY_OPS,
    LOGICAL,
    NUMERIC_ONLY,
    BinaryOp,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Let,
    Not,
    PrimExpr,
    Select,
    Var,
)
from ..ir.visitor import children
from ..tir.nodes import (
    LOOP_KINDS,
    THREAD,
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
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
from .errors import VerifyError, unknown_attribute


def verify_prim_func(func: PrimFunc, name: str) -> None:
    """Raise VerifyError for a tensor function that is not well formed. The rules are:

    Every variable and buffer is defined before its use, and not redefined in its scope. Operands, indices, stored
    values and conditions have the required dtypes. Blocks bind each of their variables, and blocks with variables do
    not use variables of the loops around them.
    """
    _Verifier(name).function(func)


class _Verifier:
    def __init__(self, name: str):
        self.name = name
        self.vars: dict[int, Var] = {}
        self.buffers: dict[int, Buffer] = {}
        self.loops: dict[int, Var] = {}
        self.hidden: set[int] = set()
        self.at: Any = None
        self.block: str | None = None

    def fail(self, message: str) -> VerifyError:
        return VerifyError(message, self.name, self.at, self.block)

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            raise self.fail(message)

    # -- definitions

    def function(self, func: PrimFunc) -> None:
        names = [p.name for p in func.params]
        for p in func.params:
            if isinstance(p, Var):
                self._define(p)
        for buffer in func.buffers:
            self.require(id(buffer) not in self.buffers, f"buffer {buffer.name!r} is a parameter twice")
            self.require(names.count(buffer.name) == 1, f"two parameters are called {buffer.name!r}")
            self.buffers[id(buffer)] = buffer
            self.vars |= {id(s): s for s in buffer.shape if isinstance(s, Var)}
        for buffer in func.buffers:
            self._shape(buffer)
        self.stmt(func.body)

    def _attributes(self, attrs: Any) -> None:
        wrong = unknown_attribute(dict(attrs))
        self.require(wrong is None, f"an attribute holds {wrong}; expected plain values or expressions")

    def _define(self, var: Var) -> None:
        self.require(id(var) not in self.vars, f"variable {var.name!r} is defined again inside its own scope")
        self.vars[id(var)] = var

    def _shape(self, buffer: Buffer) -> None:
        self.require(dt.is_known(buffer.dtype), f"buffer {buffer.name!r} has the unknown dtype {buffer.dtype!r}")
        for size in buffer.shape:
            self.integer(size, f"a size of buffer {buffer.name!r}")

    @contextmanager
    def scope(self, *variables: Var, buffers: tuple[Buffer, ...] = ()) -> Iterator[None]:
        """Context manager that defines variables and buffers inside the ``with`` block."""
        for var in variables:
            self._define(var)
        for buffer in buffers:
            self._shape(buffer)
            self.require(id(buffer) not in self.buffers, f"buffer {buffer.name!r} is allocated again in its own scope")
            self.buffers[id(buffer)] = buffer
        yield
        for var in variables:
            del self.vars[id(var)]
        for buffer in buffers:
            del self.buffers[id(buffer)]

    # -- statements

    def stmt(self, s: Stmt) -> None:
        outer, self.at = self.at, s
        method = getattr(self, f"_{type(s).__name__}", None)
        self.require(method is not None, f"{type(s).__name__} is not a statement")
        method(s)  # type: ignore[misc]
        self.at = outer

    def _SeqStmt(self, s: SeqStmt) -> None:
        for item in s.stmts:
            self.stmt(item)

    def _BufferStore(self, s: BufferStore) -> None:
        self._access(s.buffer, s.indices)
        self.expr(s.value)
        wanted, got = s.buffer.dtype, s.value.dtype
        self.require(got == wanted, f"buffer {s.buffer.name!r} holds {wanted}; got a value of {got}")

    def _Evaluate(self, s: Evaluate) -> None:
        self.expr(s.value)

    def _LetStmt(self, s: LetStmt) -> None:
        self.expr(s.value)
        self.require(s.var.dtype == s.value.dtype, f"{s.var.name!r} is {s.var.dtype}; its value is {s.value.dtype}")
        with self.scope(s.var):
            self.stmt(s.body)

    def _Allocate(self, s: Allocate) -> None:
        with self.scope(buffers=(s.buffer,)):
            self.stmt(s.body)

    def _IfThenElse(self, s: IfThenElse) -> None:
        self.truth(s.condition, "the condition")
        self.stmt(s.then_case)
        if s.else_case is not None:
            self.stmt(s.else_case)

    def _While(self, s: While) -> None:
        self.truth(s.condition, "the condition")
        self.stmt(s.body)

    def _For(self, s: For) -> None:
        self.integer(s.extent, f"the extent of loop {s.var.name!r}")
        same = s.var.dtype == s.extent.dtype
        self.require(same, f"loop {s.var.name!r} is {s.var.dtype}; its extent is {s.extent.dtype}")
        self.require(s.kind in LOOP_KINDS, f"loop kind {s.kind!r}; expected one of {', '.join(LOOP_KINDS)}")
        bound = (s.thread is not None) == (s.kind == THREAD)
        self.require(bound, f"loop {s.var.name!r} of kind {s.kind} has thread {s.thread!r}")
        self._attributes(s.annotations)
        with self.scope(s.var):
            self.loops[id(s.var)] = s.var
            self.stmt(s.body)
            del self.loops[id(s.var)]

    def _BlockRealize(self, s: BlockRealize) -> None:
        block = s.block
        outer, self.block = self.block, block.name
        counts = len(block.iter_vars), len(s.iter_values)
        self.require(
            counts[0] == counts[1], f"block {block.name!r} has {counts[0]} variables; {counts[1]} values are bound"
        )
        for it, value in zip(block.iter_vars, s.iter_values):
            self.require(
                it.kind in ("S", "R"), f"block variable {it.var.name!r} is of kind {it.kind!r}; expected S or R"
            )
            self.integer(value, f"the value of {it.var.name!r}")
            self.integer(it.extent, f"the extent of {it.var.name!r}")
            dtypes = {it.var.dtype, it.extent.dtype, value.dtype}
            self.require(
                len(dtypes) == 1, f"{it.var.name!r}, its extent and its value are of {', '.join(sorted(dtypes))}"
            )
        self.truth(s.predicate, "the predicate")
        with self.scope(*(it.var for it in block.iter_vars)):
            self._block(block)
        self.block = outer

    def _block(self, block: Block) -> None:
        self._attributes(block.annotations)
        outer = self.hidden
        if block.iter_vars:
            self.hidden = set(self.loops)
        for region in (*block.reads, *block.writes):
            self._region(region)
        with self.scope(buffers=block.alloc_buffers):
            if block.init is not None:
                self.stmt(block.init)
            self.stmt(block.body)
        self.hidden = outer

    def _region(self, region: BufferRegion) -> None:
        self._known(region.buffer)
        rank = len(region.buffer.shape)
        self.require(len(region.region) == rank, f"a region of {region.buffer.name!r} has {len(region.region)} ranges")
        for r in region.region:
            self.integer(r.min, "the start of a region")
            self.integer(r.extent, "the extent of a region")

    # -- expressions

    def _known(self, buffer: Buffer) -> None:
        self.require(id(buffer) in self.buffers, f"buffer {buffer.name!r} is used where nothing defines it")

    def _access(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> None:
        self._known(buffer)
        rank = len(buffer.shape)
        self.require(len(indices) == rank, f"buffer {buffer.name!r} has {rank} axes; got {len(indices)} indices")
        for index in indices:
            self.integer(index, f"an index of {buffer.name!r}")

    def integer(self, e: PrimExpr, what: str) -> None:
        self.expr(e)
        self.require(dt.is_int(e.dtype), f"{what} is {e.dtype}; expected an integer")

    def truth(self, e: PrimExpr, what: str) -> None:
        self.expr(e)
        self.require(e.dtype == "bool", f"{what} is {e.dtype}; expected bool")

    def expr(self, e: PrimExpr) -> None:
        self.require(isinstance(e, PrimExpr), f"got a {type(e).__name__} where an expression is expected")
        if isinstance(e, Let):
            self.expr(e.value)
            with self.scope(e.var):
                self.expr(e.body)
            return
        for child in _operands(e):
            self.expr(child)
        if isinstance(e, Var):
            self._use(e)
        elif isinstance(e, BufferLoad):
            self._access(e.buffer, e.indices)
        elif isinstance(e, IntImm):
            self.require(_in_range(e), f"{e.value} does not fit in {e.dtype}")
        elif isinstance(e, FloatImm):
            self.require(dt.is_float(e.dtype), f"a floating immediate of {e.dtype}")
        else:
            self._operator(e)

    def _use(self, var: Var) -> None:
        self.require(id(var) in self.vars, f"variable {var.name!r} is used where nothing defines it")
        outside = id(var) in self.hidden
        self.require(not outside, f"loop variable {var.name!r} is used inside a block; bind it to a block variable")

    def _operator(self, e: PrimExpr) -> None:
        if isinstance(e, BinaryOp):
            self.require(e.op in BINARY_OPS, f"unknown operator {e.op!r}")
            self.require(e.a.dtype == e.b.dtype, f"operands of {e.op!r} are {e.a.dtype} and {e.b.dtype}")
            boolean = e.op not in LOGICAL or e.a.dtype == "bool"
            self.require(boolean, f"operands of {e.op!r} are {e.a.dtype}; expected bool")
            number = e.op not in NUMERIC_ONLY or e.a.dtype != "bool"
            self.require(number, f"operands of {e.op!r} are bool; expected numbers")
        elif isinstance(e, Not):
            self.require(e.value.dtype == "bool", f"the operand of 'not' is {e.value.dtype}; expected bool")
        elif isinstance(e, Select):
            self.require(e.condition.dtype == "bool", f"the condition of T.Select is {e.condition.dtype}")
            a, b = e.true_value.dtype, e.false_value.dtype
            self.require(a == b, f"the values of T.Select are {a} and {b}")
        elif isinstance(e, Cast):
            self.require(e.value.dtype != e.dtype, f"a cast of {e.dtype} to itself")
        elif isinstance(e, Call) and e.op == "if_then_else":
            good = len(e.args) == 3 and e.args[0].dtype == "bool" and e.args[1].dtype == e.args[2].dtype == e.dtype
            self.require(good, f"if_then_else takes a bool and two values of {e.dtype}")


def _operands(e: PrimExpr) -> Iterator[PrimExpr]:
    if isinstance(e, Var):
        return
    for child in children(e):
        if isinstance(child, PrimExpr):
            yield child
        elif isinstance(child, tuple):
            yield from (c for c in child if isinstance(c, PrimExpr))


def _in_range(e: IntImm) -> bool:
    if e.dtype == "bool":
        return e.value in (0, 1)
    width, signed = dt.bits(e.dtype), dt.is_signed(e.dtype)
    low = -(1 << (width - 1)) if signed else 0
    return low <= e.value < low + (1 << width)
