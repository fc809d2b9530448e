"""Placement of intermediate buffers: around the smallest statement with all accesses, in the size that is live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.expr import PrimExpr, Var, is_const
from ..ir.simplify import Analyzer
from ..ir.visitor import Rewriter, walk
from .liveness import live_box, written_before_read
from .nodes import (
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
)
from .schedule.access import accesses_in
from .schedule.dependence import is_self_contained
from .schedule.tree import replace_in
from .threads import SHARING_AXES, is_bound


def place_scratch(body: Stmt, buffer: Buffer) -> Stmt:
    """Allocate a buffer around the smallest statement with all its accesses, in the size that is live there."""
    if not _touches(body, buffer):
        return body
    if buffer.scope == "shared" and is_bound(body, SHARING_AXES):
        return _allocate_shared(body, buffer)
    if isinstance(body, For) and _is_private(body, buffer):
        return replace(body, body=place_scratch(body.body, buffer))
    if isinstance(body, SeqStmt):
        inside = [s for s in body.stmts if _touches(s, buffer)]
        if len(inside) == 1:
            return SeqStmt(tuple(place_scratch(s, buffer) if s is inside[0] else s for s in body.stmts))
    if isinstance(body, IfThenElse) and body.else_case is None and not _touches(body.condition, buffer):
        return replace(body, then_case=place_scratch(body.then_case, buffer))
    if isinstance(body, Allocate):
        return replace(body, body=place_scratch(body.body, buffer))
    return _allocate(body, buffer)


def _is_private(loop: For, buffer: Buffer) -> bool:
    """Whether every iteration may have its own buffer: none reads elements that another has written.

    SIMD lanes share one buffer, with an element for each lane.
    """
    if loop.kind == VECTORIZED or _touches(loop.extent, buffer):
        return False
    return loop.kind in (PARALLEL, THREAD) or written_before_read(loop.body, buffer)


def _touches(node: object, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in walk(node))


def _allocate(body: Stmt, buffer: Buffer) -> Stmt:
    box = live_box(body, buffer)
    if box is None:
        return Allocate(buffer, body)
    compact = replace(buffer, shape=tuple(r.extent for r in box))
    return Allocate(compact, _Shift(buffer, compact, [r.min for r in box])(body))


def _allocate_shared(loop: For, buffer: Buffer) -> Stmt:
    """Allocate a buffer around a loop over threads, in the size that all of them use in an iteration of inner loops."""
    threads: dict[Var, PrimExpr] = {}
    part = _part_with_all(loop, buffer, threads, ())
    box = live_box(part, buffer, threads)
    if box is None:
        return Allocate(buffer, loop)
    compact = replace(buffer, shape=tuple(r.extent for r in box))
    moved = _Shift(buffer, compact, [r.min for r in box])(part)
    return Allocate(compact, replace_in(loop, {part: moved}))


def _part_with_all(stmt: Stmt, buffer: Buffer, threads: dict[Var, PrimExpr], path: tuple[Stmt, ...]) -> Stmt:
    """The smallest statement with all accesses that writes what it reads; ``threads``: receives the loops around it."""
    path = (*path, stmt)
    if is_bound(stmt, SHARING_AXES):
        threads[stmt.var] = stmt.extent
        return _part_with_all(stmt.body, buffer, threads, path)
    if isinstance(stmt, For) and stmt.kind in (SERIAL, UNROLLED) and not _touches(stmt.extent, buffer):
        inside = [a for a in accesses_in(stmt.body) if a.buffer is buffer]
        return _part_with_all(stmt.body, buffer, threads, path) if is_self_contained(inside, path) else stmt
    if isinstance(stmt, SeqStmt):
        touching = [s for s in stmt.stmts if _touches(s, buffer)]
        return _part_with_all(touching[0], buffer, threads, path) if len(touching) == 1 else stmt
    return _part_with_all(stmt.body, buffer, threads, path) if isinstance(stmt, Allocate) else stmt


class _Shift(Rewriter):
    """Replaces accesses of a buffer by accesses of another one that begins at ``origin``."""

    def __init__(self, old: Buffer, new: Buffer, origin: Sequence[PrimExpr]):
        self.old, self.new, self.origin = old, new, origin
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> For:
        self.analyzer.bind(node.var, node.extent)
        return self.rewrite_children(node)

    def _indices(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        pairs = zip(indices, self.origin, strict=True)
        return tuple(i if is_const(o, 0) else self.analyzer.simplify(i - o) for i, o in pairs)

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        inner = self(node.indices)
        if node.buffer is self.old:
            return BufferLoad(self.new, self._indices(inner))
        return node if inner is node.indices else BufferLoad(node.buffer, inner)

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        value, inner = self(node.value), self(node.indices)
        if node.buffer is self.old:
            return BufferStore(self.new, value, self._indices(inner))
        return BufferStore(node.buffer, value, inner)
