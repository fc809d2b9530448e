"""Placement of intermediate buffers: around the smallest statement with all accesses, shrunk to the live size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from mlc_errors import MLCError

from ..ir.expr import IntImm, PrimExpr, Var, const, is_const
from ..ir.simplify import Analyzer
from ..ir.visitor import Rewriter, nodes_of
from .liveness import Touched, live_box, written_before_read
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
    Range,
    SeqStmt,
    Stmt,
)
from .schedule.access import accesses_in
from .schedule.dependence import is_self_contained
from .schedule.tree import replace_in
from .threads import SHARING_AXES, is_bound

Alignment = tuple[int, int, int]
"""(axis, factor, offset): the stride of the axis is ``offset`` modulo ``factor``; see ``Schedule.storage_align``."""


def place_scratch(body: Stmt, buffer: Buffer, alignments: Iterable[Alignment], touched: Touched) -> Stmt:
    """Allocate a buffer around the smallest statement with all its accesses, shrunk to the live elements.

    alignments: required alignments of the buffer's strides; axes are padded to satisfy them.
    """
    return _Placement(buffer, tuple(alignments), touched).place(body) if touched.touches(body, buffer) else body


@dataclass
class _Placement:
    """``loops``: the loops around the current statement; ``threads``: the loop variables that share the buffer."""

    buffer: Buffer
    alignments: tuple[Alignment, ...]
    touched: Touched
    loops: dict[Var, PrimExpr] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)

    def place(self, body: Stmt) -> Stmt:
        """Return a statement that accesses the buffer with the buffer's allocation added."""
        buffer = self.buffer
        if buffer.scope == "shared" and is_bound(body, SHARING_AXES):
            return self._around_threads(body)
        if isinstance(body, For) and self._is_private(body):
            self.loops[body.var] = body.extent
            return replace(body, body=self.place(body.body))
        if isinstance(body, SeqStmt):
            inside = [s for s in body.stmts if self.touched.touches(s, buffer)]
            if len(inside) == 1:
                return SeqStmt(tuple(self.place(s) if s is inside[0] else s for s in body.stmts))
        if isinstance(body, IfThenElse) and body.else_case is None and not _reads(body.condition, buffer):
            return replace(body, then_case=self.place(body.then_case))
        if isinstance(body, Allocate):
            return replace(body, body=self.place(body.body))
        placed, part = self._compacted(body)
        return Allocate(placed, part)

    def _is_private(self, loop: For) -> bool:
        """Whether every iteration may have its own buffer: none reads elements that another one wrote.

        SIMD lanes share one buffer, which has an element per lane.
        """
        if loop.kind == VECTORIZED or _reads(loop.extent, self.buffer):
            return False
        return loop.kind in (PARALLEL, THREAD) or written_before_read(loop.body, self.buffer, self.touched)

    def _around_threads(self, loop: For) -> Stmt:
        """Allocate around a loop over threads, in the size that all threads use in an iteration of inner loops."""
        part = self._part_with_all(loop, ())
        placed, moved = self._compacted(part)
        return Allocate(placed, loop if moved is part else replace_in(loop, {part: moved}))

    def _part_with_all(self, stmt: Stmt, path: tuple[Stmt, ...]) -> Stmt:
        """The smallest statement below a thread loop that has all accesses and writes each element before its reads."""
        path = (*path, stmt)
        if isinstance(stmt, SeqStmt):
            touching = [s for s in stmt.stmts if self.touched.touches(s, self.buffer)]
            return self._part_with_all(touching[0], path) if len(touching) == 1 else stmt
        if isinstance(stmt, Allocate):
            return self._part_with_all(stmt.body, path)
        if not isinstance(stmt, For) or not (is_bound(stmt, SHARING_AXES) or self._is_whole(stmt, path)):
            return stmt
        self.loops[stmt.var] = stmt.extent
        self.threads |= {id(stmt.var)} if is_bound(stmt, SHARING_AXES) else set()
        return self._part_with_all(stmt.body, path)

    def _is_whole(self, loop: For, path: tuple[Stmt, ...]) -> bool:
        """Whether each iteration of a loop reads only elements that it has written."""
        if loop.kind not in (SERIAL, UNROLLED) or _reads(loop.extent, self.buffer):
            return False
        return is_self_contained([a for a in accesses_in(loop.body) if a.buffer is self.buffer], path)

    def _compacted(self, part: Stmt) -> tuple[Buffer, Stmt]:
        """The buffer shrunk to the elements that ``part`` accesses, and aligned, and ``part`` redirected to it."""
        box = live_box(part, self.buffer, self.touched, self.loops, frozenset(self.threads))
        if box is None and not self.alignments:
            return self.buffer, part
        axes = box or tuple(Range(const(0, size.dtype), size) for size in self.buffer.shape)
        compact = replace(self.buffer, shape=aligned_shape(tuple(r.extent for r in axes), self.alignments))
        return compact, _Shift(self.buffer, compact, [r.min for r in axes])(part)


def aligned_shape(shape: Sequence[PrimExpr], alignments: Iterable[Alignment]) -> tuple[PrimExpr, ...]:
    """Pad a shape so that the strides of axes are aligned: the axis after each aligned one becomes longer.

    Raises MLCError for sizes that are not constant, and where no length of the next axis gives the offset.
    """
    sizes = list(shape)
    for axis, factor, offset in sorted(alignments, reverse=True):
        inner = [s.value for s in sizes[axis + 1 :] if isinstance(s, IntImm)]
        if len(inner) != len(sizes) - axis - 1:
            raise MLCError("storage_align: the buffer's shape is not constant")
        lengths = (n for n in range(inner[0], inner[0] + factor) if n * prod(inner[1:]) % factor == offset)
        length = next(lengths, None)
        if length is None:
            raise MLCError(f"storage_align: no stride of axis {axis} is {offset} modulo {factor}")
        sizes[axis + 1] = const(length, sizes[axis + 1].dtype)
    return tuple(sizes)


def _reads(expr: PrimExpr, buffer: Buffer) -> bool:
    return any(load.buffer is buffer for load in nodes_of(expr, BufferLoad))


class _Shift(Rewriter):
    """Redirects accesses of a buffer to a smaller one that begins at ``origin``."""

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
