"""Fold guards on loop variables into loop extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from ..ir.expr import BinaryOp, PrimExpr, ceildiv, conjuncts, const, logical_and, maximum, minimum
from ..ir.simplify import Analyzer, key
from ..ir.visitor import Rewriter, nodes_of, substitute, uses
from .nodes import SERIAL, BufferLoad, For, IfThenElse, SeqStmt, Stmt


def tighten_loops(body: Stmt) -> Stmt:
    """Hoist loop-invariant guards, and fold a guard ``i < bound`` of a serial loop's body into its extent.

    ``for i in range(64): if tile * 64 + i < n: body`` becomes ``for i in range(min(64, n - tile * 64)): body``.
    """
    return _Tighten()(body)


class _Tighten(Rewriter):
    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> Stmt:
        self.analyzer.bind(node.var, node.extent)
        loop = self.rewrite_children(node)
        if not _is_guard(loop.body):
            return loop
        terms = conjuncts(loop.body.condition)
        outside = [t for t in terms if not uses(t, loop.var)]
        inside = [t for t in terms if uses(t, loop.var)]
        bounds = [self._bound(t, loop) for t in inside] if loop.kind == SERIAL else [None for _ in inside]
        extent = loop.extent
        for bound in bounds:
            extent = extent if bound is None else minimum(extent, bound)
        kept = [t for t, bound in zip(inside, bounds, strict=True) if bound is None]
        body = _guarded(kept, loop.body.then_case)
        return _guarded(outside, replace(loop, extent=self.analyzer.simplify(extent), body=body))

    def rewrite_SeqStmt(self, node: SeqStmt) -> Stmt:
        merged: list[Stmt] = []
        for stmt in self.rewrite_children(node).stmts:
            last = merged[-1] if merged else None
            if _is_guard(last) and _is_guard(stmt) and key(last.condition) == key(stmt.condition):
                merged[-1] = replace(last, then_case=SeqStmt((last.then_case, stmt.then_case)))
            else:
                merged.append(stmt)
        return merged[0] if len(merged) == 1 else SeqStmt(tuple(merged))

    def _bound(self, term: PrimExpr, loop: For) -> PrimExpr | None:
        """The number of leading iterations in which ``term`` holds, if it holds in no later one; None if unproved."""
        if not isinstance(term, BinaryOp) or term.op != "<" or uses(term.b, loop.var):
            return None
        first = substitute(term.a, {loop.var: const(0, loop.var.dtype)})
        _, step = self.analyzer.linear(term.a).terms.get(key(loop.var), (None, 0))
        if step <= 0 or not self.analyzer.prove_equal(term.a, first + loop.var * step):
            return None
        return maximum(ceildiv(term.b - first, step), const(0, loop.var.dtype))


def _is_guard(stmt: Stmt | None) -> TypeGuard[IfThenElse]:
    """Whether a statement is an ``if`` without ``else`` whose condition loads no buffer, so that it may be moved."""
    if not isinstance(stmt, IfThenElse) or stmt.else_case is not None:
        return False
    return not nodes_of(stmt.condition, BufferLoad)


def _guarded(terms: Sequence[PrimExpr], body: Stmt) -> Stmt:
    return IfThenElse(logical_and(*terms), body) if terms else body
