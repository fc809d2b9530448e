"""Statements of tensor functions: the loop IR.

A ``Block`` is the unit of scheduling: its body reads and writes buffers at indices made of its own iteration variables
(spatial ``S`` or reduction ``R``), which a ``BlockRealize`` binds to expressions of the surrounding loops.
Lowering removes blocks; loops, stores, lets, conditionals and allocations remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

from ..ir.expr import ExprLike, IntImm, PrimExpr, Var, as_expr
from ..ir.node import node
from ..ir.printable import Printable, with_attr

SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD = "serial", "parallel", "vectorized", "unroll", "thread_binding"
LOOP_KINDS = (SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD)
PRIVATE = "private"
"""Scope of buffers of which each thread of a CPU's team has a copy, all of which it computes."""
SCOPES = ("global", "shared", "local", "warp", PRIVATE)


@node
class Buffer:
    """A dense row-major array. ``scope``: global memory, memory shared by a GPU block, registers of one thread, or
    registers of a warp, which only instructions access; or ``ZEROED`` or ``PRIVATE``."""

    binds_by_identity: ClassVar[bool] = True
    __iter__: ClassVar[None] = None  # not iterable: ``__getitem__`` never raises IndexError

    name: str
    shape: tuple[PrimExpr, ...]
    dtype: str = "float32"
    scope: str = "global"

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> BufferLoad:
        items = indices if isinstance(indices, tuple) else (indices,)
        return BufferLoad(self, tuple(as_expr(i) for i in items))

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{len(self.shape)}d]"


def buffer(
    name: str, shape: tuple[ExprLike, ...] | list[ExprLike], dtype: str = "float32", scope: str = "global"
) -> Buffer:
    """A buffer with its shape converted to expressions."""
    return Buffer(name, tuple(as_expr(s) for s in shape), dtype, scope)


@node
class BufferLoad(PrimExpr):
    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype


class Stmt:
    """Base of all statements."""

    __slots__ = ()


@node
class BufferStore(Stmt):
    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]


@node
class Evaluate(Stmt):
    """Evaluates an expression, such as an intrinsic call, for its side effect."""

    value: PrimExpr


@node
class LetStmt(Stmt):
    defines: ClassVar[tuple[str, ...]] = ("var",)

    var: Var
    value: PrimExpr
    body: Stmt


@node
class IfThenElse(Stmt):
    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@node
class For(Stmt):
    """``for var in [0, extent)``. ``thread``: the GPU index of a ``thread_binding`` loop, such as ``blockIdx.x``."""

    defines: ClassVar[tuple[str, ...]] = ("var",)

    var: Var
    extent: PrimExpr
    body: Stmt
    kind: str = SERIAL
    thread: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@node
class While(Stmt):
    condition: PrimExpr
    body: Stmt


@node
class SeqStmt(Stmt):
    """Statements in order; nested sequences are flattened."""

    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        if any(isinstance(s, SeqStmt) for s in self.stmts):
            flat = (t for s in self.stmts for t in (s.stmts if isinstance(s, SeqStmt) else (s,)))
            object.__setattr__(self, "stmts", tuple(flat))


ZEROED = "zeroed"
"""Scope of scratch buffers in global memory that are zero on entry to a function and must be zero again on exit."""


@node
class Allocate(Stmt):
    """Allocates a buffer for the duration of ``body``, in lowered functions (blocks have ``alloc_buffers``)."""

    defines: ClassVar[tuple[str, ...]] = ("buffer",)

    buffer: Buffer
    body: Stmt


@node
class Range:
    """``[min, min + extent)``"""

    min: PrimExpr
    extent: PrimExpr


@node
class BufferRegion:
    """A box of a buffer that a block reads or writes."""

    buffer: Buffer
    region: tuple[Range, ...]


@node
class IterVar:
    """A block's iteration variable over ``[0, extent)``; kind ``S`` spatial, ``R`` reduction."""

    defines: ClassVar[tuple[str, ...]] = ("var",)

    var: Var
    extent: PrimExpr
    kind: str


@node
class Block(Stmt):
    """A computation with its own iteration space. ``init`` runs before the body where all reduction variables are 0."""

    defines: ClassVar[tuple[str, ...]] = ("alloc_buffers",)

    name: str
    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_reduction(self) -> bool:
        """Whether the block has a reduction variable."""
        return any(it.kind == "R" for it in self.iter_vars)


@node
class BlockRealize(Stmt):
    """Executes a block with its variables bound to ``iter_values``; skipped where ``predicate`` is false."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block


@node
class PrimFunc(Printable):
    """A tensor function in destination-passing style: takes buffers and scalars, and writes the last buffers.

    Symbolic sizes are the variables in the buffers' shapes; scalar parameters are ``Var``.
    ``attrs``: ``global_symbol`` (exported name), ``tir.noalias``, ``op_pattern``, ``num_outputs`` and others.
    """

    is_closed: ClassVar[bool] = True

    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> PrimFunc:
        """The function with an attribute, or all of a mapping, set."""
        return replace(self, attrs=with_attr(self.attrs, key, value))

    def without_attr(self, key: str) -> PrimFunc:
        return replace(self, attrs={k: v for k, v in self.attrs.items() if k != key})

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are buffers, in order."""
        return tuple(p for p in self.params if isinstance(p, Buffer))


def seq(*stmts: Stmt) -> Stmt:
    """Return the statements as one statement, nested sequences flattened."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, SeqStmt) else (s,))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def loop_nest(loops: Iterable[tuple[Var, PrimExpr]], body: Stmt) -> Stmt:
    """Build serial loops (variable, extent) around a statement, the first one outermost."""
    for var, extent in reversed(list(loops)):
        body = For(var, extent, body)
    return body


def open_nest(stmt: Stmt) -> tuple[list[For], Stmt]:
    """The loops of a perfect nest, outermost first, and the statement inside them."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt


def root_block(body: Stmt, alloc_buffers: tuple[Buffer, ...] = ()) -> BlockRealize:
    """The outermost block of a schedulable function; it allocates the function's intermediate buffers."""
    return BlockRealize((), IntImm(1, "bool"), Block("root", (), (), (), body, None, alloc_buffers))


def is_root(stmt: Stmt) -> bool:
    return isinstance(stmt, BlockRealize) and not stmt.iter_values and stmt.block.name == "root"
