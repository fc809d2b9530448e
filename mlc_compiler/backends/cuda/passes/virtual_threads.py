"""Remove virtual threads: replicate the statements that depend on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlc_errors import MLCError

from ....ir.expr import IntImm, PrimExpr, Var
from ....ir.visitor import Rewriter, substitute, walk
from ....passes.base import FunctionPass
from ....tir.leading_axes import LeadingAxes
from ....tir.nodes import (
    UNROLLED,
    VECTORIZED,
    Allocate,
    Buffer,
    BufferLoad,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)
from ....tir.threads import VIRTUAL_AXES, has_sync, is_bound
from ....tir.varying import Varying


@dataclass(frozen=True)
class VirtualThreads(FunctionPass):
    """Replace loops over ``vthread`` by innermost unrolled loops around the statements that depend on their variable.

    Other statements, and barriers, run once for all virtual threads. Buffers that are allocated inside and hold
    values of one virtual thread get a leading axis. Needs: lowered tensor functions. Raises MLCError if a statement
    with a barrier would have to be replicated.
    """

    name = "virtual-threads"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return virtual_threads(func)


def virtual_threads(func: PrimFunc) -> PrimFunc:
    """Rewrite one function; see :class:`VirtualThreads`."""
    return replace(func, body=_RemoveLoops()(func.body))


class _RemoveLoops(Rewriter):
    def rewrite_For(self, node: For) -> Stmt:
        node = self.rewrite_children(node)
        if not is_bound(node, VIRTUAL_AXES):
            return node
        if not isinstance(node.extent, IntImm):
            raise MLCError(f"the extent of loop {node.var.name!r} over {node.thread} is not a constant")
        return _Replicate(node).stmt(node.body)


class _Replicate:
    """Moves a loop over virtual threads inwards, to the statements that depend on its variable."""

    def __init__(self, loop: For):
        self.loop = loop
        allocated = {id(n.buffer) for n in walk(loop.body) if isinstance(n, Allocate)}
        self.varying = Varying(loop.body, [loop.var], lambda buffer: id(buffer) in allocated)
        self.wider: dict[int, Buffer] = {}

    def stmt(self, s: Stmt) -> Stmt:
        """The statement for all virtual threads."""
        depends = self.varying.depends
        if not depends(s):
            return s
        if isinstance(s, SeqStmt):
            return SeqStmt(tuple(map(self.stmt, s.stmts)))
        if isinstance(s, For) and s.kind != VECTORIZED and not depends(s.extent):
            return replace(s, body=self.stmt(s.body))
        if isinstance(s, While) and not depends(s.condition):
            return replace(s, body=self.stmt(s.body))
        if isinstance(s, IfThenElse) and not depends(s.condition):
            return replace(
                s, then_case=self.stmt(s.then_case), else_case=None if s.else_case is None else self.stmt(s.else_case)
            )
        if isinstance(s, Allocate):
            return self._allocate(s)
        if isinstance(s, LetStmt):
            return self._let(s)
        return self._copies(s)

    def _allocate(self, s: Allocate) -> Stmt:
        if not self.varying.depends(s.buffer):
            return Allocate(s.buffer, self.stmt(s.body))
        wider = replace(s.buffer, shape=(self.loop.extent, *s.buffer.shape))
        self.wider[id(s.buffer)] = wider
        return Allocate(wider, self.stmt(s.body))

    def _let(self, s: LetStmt) -> Stmt:
        """Substitute a value that differs between virtual threads, unless it loads from memory."""
        if not self.varying.depends(s.value):
            return replace(s, body=self.stmt(s.body))
        if any(isinstance(n, BufferLoad) for n in walk(s.value)):
            return self._copies(s)
        return self.stmt(substitute(s.body, {s.var: s.value}))

    def _copies(self, s: Stmt) -> Stmt:
        if has_sync(s) or has_sync(s, "warp"):
            raise MLCError(
                f"virtual threads: a barrier lies inside a condition or loop that depends on {self.loop.var.name!r}",
                hint="move the barrier out of it, or bind the loop to threadIdx",
            )
        copy = Var(self.loop.var.name, self.loop.var.dtype)
        index: tuple[PrimExpr, ...] = (copy,)
        body = LeadingAxes({key: (buffer, index) for key, buffer in self.wider.items()})(s)
        return For(copy, self.loop.extent, substitute(body, {self.loop.var: copy}), UNROLLED)
