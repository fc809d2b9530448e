"""Compute the last, partly masked step of a loop over SIMD lanes after the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....ir.expr import BinaryOp, Call, IntImm, PrimExpr, Var, ceildiv, conjuncts, const, logical_and
from ....ir.simplify import Analyzer, key
from ....ir.visitor import Rewriter, substitute, uses, walk
from ....passes.base import FunctionPass
from ....tir.nodes import SERIAL, UNROLLED, VECTORIZED, For, IfThenElse, PrimFunc, Stmt, seq


@dataclass(frozen=True)
class PeelGuards(FunctionPass):
    """Split loops around SIMD lanes where a guard ``i * lanes + lane < size`` begins to fail.

    Steps before that are neither masked nor branched on; the others, usually one, follow with their guard. Applies to
    serial loops of constant extent, which contain no other loops than unrolled and vectorized ones, at least one.
    Needs: lowered tensor functions.
    """

    name = "peel-guards"

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        return _Peel()(func)


class _Peel(Rewriter):
    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> Stmt:
        self.analyzer.bind(node.var, node.extent)
        loops = [n for n in walk(node.body) if isinstance(n, For)]
        if not _is_around_lanes(node, loops):
            return self.rewrite_children(node)
        for loop in loops:
            self.analyzer.bind(loop.var, loop.extent)
        assert isinstance(node.extent, IntImm)
        extent, holds = node.extent.value, self._guards(node, [loop for loop in loops if _extent(loop) is not None])
        free = min(holds.values(), default=0)
        if not 0 < free < extent:
            return node
        return seq(_part(node, 0, free, holds), _part(node, free, extent, {}))

    def _guards(self, node: For, inner: Sequence[For]) -> dict[int, int]:
        """By identity of each term of a guard that uses the loop: the number of leading steps in which it holds."""
        conditions = [c for n in walk(node.body) if (c := _condition(n)) is not None]
        terms = [term for c in conditions for term in conjuncts(c) if uses(term, node.var)]
        return {id(term): self._holding(term, node, inner) for term in terms}

    def _holding(self, term: PrimExpr, node: For, inner: Sequence[For]) -> int:
        """The number of leading steps in which ``a < b`` holds for all iterations of the inner loops; 0 if unknown."""
        if not isinstance(term, BinaryOp) or term.op != "<" or uses(term.b, node.var):
            return 0
        coefficients = self.analyzer.linear(term.a).terms
        _, step = coefficients.get(key(node.var), (None, 0))
        if step <= 0 or any(coefficients.get(key(loop.var), (None, 0))[1] < 0 for loop in inner):
            return 0
        last = {loop.var: const(_extent(loop) - 1, loop.var.dtype) for loop in inner}  # type: ignore[operator]
        start = substitute(term.a, {**last, node.var: const(0, node.var.dtype)})
        whole = substitute(term.a, last)
        room = self.analyzer.simplify(ceildiv(term.b - start, step))
        if not isinstance(room, IntImm) or not self.analyzer.prove_equal(whole, start + node.var * step):
            return 0
        return max(room.value, 0)


class _Assume(Rewriter):
    """Removes the terms of guards that hold."""

    def __init__(self, holding: dict[int, int]):
        self.holding = holding

    def rewrite_IfThenElse(self, node: IfThenElse) -> Stmt:
        rest = self._rest(node.condition)
        if rest is None:
            return self(node.then_case)
        return self.rewrite_children(replace(node, condition=rest))

    def rewrite_Call(self, node: Call) -> PrimExpr:
        condition = _condition(node)
        if condition is None:
            return self.rewrite_children(node)
        rest = self._rest(condition)
        return self(node.args[1]) if rest is None else self.rewrite_children(replace(node, args=(rest, *node.args[1:])))

    def _rest(self, condition: PrimExpr) -> PrimExpr | None:
        terms = [term for term in conjuncts(condition) if id(term) not in self.holding]
        return logical_and(*terms) if terms else None


def _is_around_lanes(node: For, inner: Sequence[For]) -> bool:
    if node.kind != SERIAL or not isinstance(node.extent, IntImm):
        return False
    kinds = {loop.kind for loop in inner}
    return VECTORIZED in kinds and kinds <= {VECTORIZED, UNROLLED}


def _extent(loop: For) -> int | None:
    return loop.extent.value if isinstance(loop.extent, IntImm) else None


def _condition(node: object) -> PrimExpr | None:
    """The condition of an ``if`` statement, or of an expression that evaluates one of two operands."""
    if isinstance(node, IfThenElse):
        return node.condition
    return node.args[0] if isinstance(node, Call) and node.op == "if_then_else" else None


def _part(node: For, begin: int, end: int, holding: dict[int, int]) -> Stmt:
    """The steps from ``begin`` to ``end`` of a loop, without the guards that hold."""
    dtype = node.var.dtype
    body = _Assume(holding)(node.body)
    if begin == 0:
        return replace(node, extent=const(end, dtype), body=body)
    if end == begin + 1:
        return _with_own_loops(body, {node.var: const(begin, dtype)})
    var = Var(node.var.name, dtype)
    return replace(node, var=var, extent=const(end - begin, dtype), body=_with_own_loops(body, {node.var: var + begin}))


def _with_own_loops(body: Stmt, mapping: dict[Var, PrimExpr]) -> Stmt:
    """A copy of statements with new variables for their loops."""
    fresh = {n.var: Var(n.var.name, n.var.dtype) for n in walk(body) if isinstance(n, For)}
    return substitute(body, {**mapping, **fresh})
