"""Loop fission: split a statement that several threads execute, at its barriers, into loops over the threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby

from mlc_errors import MLCError

from ....ir.expr import PrimExpr, Var, const
from ....ir.visitor import Rewriter, substitute, walk
from ....script import script
from ....tir.leading_axes import LeadingAxes
from ....tir.nodes import (
    VECTORIZED,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ....tir.varying import Varying

Parts = dict[int, tuple[Buffer, int]]
"""Identity of a buffer with a part for each thread -> the buffer, and its number of leading axes for threads."""


@dataclass
class Fission:
    """Distributes loops over threads to the parts of a statement between its cuts.

    threads: the thread index variables, with their extents. is_cut: whether a leaf statement is a barrier, or executed
    by the threads together. region: wraps a statement without cuts in loops over the threads. cut: replaces a cut.
    varying: variables and buffers that depend on the thread. who: name of the threads, for errors. wide: the buffers
    that have a part for each thread.
    """

    threads: dict[Var, PrimExpr]
    is_cut: Callable[[Stmt], bool]
    region: Callable[[Stmt], Stmt]
    cut: Callable[[Stmt], Stmt]
    varying: Varying
    who: str
    wide: Parts = field(default_factory=dict)

    def __call__(self, s: Stmt) -> Stmt:
        """The statement, executed by all threads. Raises MLCError for a cut in divergent control flow."""
        if not self._has_cut(s):
            return self.region(s)
        if isinstance(s, SeqStmt):
            return self._sequence(s)
        if isinstance(s, Allocate):
            wider, body = self._widened(s.buffer, s.body)
            return Allocate(wider, self(body))
        if isinstance(s, LetStmt):
            return self._let(s)
        if isinstance(s, For):
            if s.kind == VECTORIZED:
                raise self._divergent(s, f"the vectorized loop {s.var.name!r}")
            extent = self._uniform(s, s.extent, f"the loop {s.var.name!r}")
            return replace(s, extent=extent, body=self(s.body))
        if isinstance(s, While):
            return replace(s, condition=self._uniform(s, s.condition, "a while loop"), body=self(s.body))
        if isinstance(s, IfThenElse):
            otherwise = None if s.else_case is None else self(s.else_case)
            return IfThenElse(self._uniform(s, s.condition, "a condition"), self(s.then_case), otherwise)
        return self.cut(s)

    def _has_cut(self, s: Stmt) -> bool:
        return any(isinstance(n, Stmt) and self.is_cut(n) for n in walk(s))

    def _sequence(self, s: SeqStmt) -> Stmt:
        parts: list[Stmt] = []
        for cuts, group in groupby(s.stmts, self._has_cut):
            run = list(group)
            parts += map(self, run) if cuts else [self.region(seq(*run))]
        return SeqStmt(tuple(parts))

    def _uniform(self, s: Stmt, value: PrimExpr, what: str) -> PrimExpr:
        """A condition or extent that is the same for all threads, with the indices of the first thread."""
        if self.varying.depends(FirstParts(self.wide)(value)):
            raise self._divergent(s, what)
        return substitute(value, {var: const(0, var.dtype) for var in self.threads})

    def _divergent(self, s: Stmt, what: str) -> MLCError:
        inside = next(n for n in walk(s) if isinstance(n, Stmt) and self.is_cut(n))
        return MLCError(
            f"divergent barrier: {script(inside).strip()} lies inside {what}, which differs between {self.who}",
            hint="move it out, so that all of them reach it",
        )

    def _widened(self, buffer: Buffer, body: Stmt) -> tuple[Buffer, Stmt]:
        """Give a buffer a part for each thread; returns it, and the statement in which threads access their parts."""
        wider = replace(buffer, shape=(*self.threads.values(), *buffer.shape))
        self._inherit(buffer, wider)
        return wider, LeadingAxes({id(buffer): (wider, tuple(self.threads))})(body)

    def _inherit(self, old: Buffer | Var, new: Buffer) -> None:
        self.wide[id(new)] = new, len(self.threads)
        if self.varying.depends(old):
            self.varying.found.add(id(new))

    def _let(self, s: LetStmt) -> Stmt:
        """Substitute a value that varies between threads, or store it in a buffer if it loads from memory."""
        if not self.varying.depends(FirstParts(self.wide)(s.value)):
            return replace(s, value=self._uniform(s, s.value, ""), body=self(s.body))
        if not any(isinstance(n, BufferLoad) for n in walk(s.value)):
            return self(substitute(s.body, {s.var: s.value}))
        values = Buffer(s.var.name, tuple(self.threads.values()), s.var.dtype, "local")
        self._inherit(s.var, values)
        own: tuple[PrimExpr, ...] = tuple(self.threads)
        body = substitute(s.body, {s.var: BufferLoad(values, own)})
        return Allocate(values, self(seq(BufferStore(values, s.value, own), body)))


class FirstParts(Rewriter):
    """Replaces the thread indices of buffers with a part for each thread by 0."""

    def __init__(self, wide: Parts):
        self.wide = wide

    def _first(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        leading = self.wide[id(buffer)][1] if id(buffer) in self.wide else 0
        return (*(const(0, i.dtype) for i in indices[:leading]), *indices[leading:])

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return BufferLoad(node.buffer, self._first(node.buffer, self(node.indices)))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        return BufferStore(node.buffer, self(node.value), self._first(node.buffer, self(node.indices)))
