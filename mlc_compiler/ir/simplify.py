"""Simplification of integer expressions and proofs about them, by linear forms (``ir/normal_form.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import dtype as dt
from .expr import COMPARISONS, BinaryOp, Cast, ExprLike, IntImm, Let, Not, PrimExpr, Select, Var, as_expr, binary, cast
from .linear import Linear, key
from .proofs import Prover
from .visitor import Rewriter, nodes_of

__all__ = ["Analyzer", "Linear", "key", "simplify"]

_ARITHMETIC = ("+", "-", "*", "//", "%", "min", "max", "<<", ">>", "&", "/")


class Analyzer(Prover):
    """Simplifies and proves under given ranges of variables; see :class:`Ranges` for the assumptions."""

    def simplify(self, expr: ExprLike) -> PrimExpr:
        """An equal expression that has no more nodes."""
        whole = as_expr(expr)
        if isinstance(whole, IntImm | Var):
            return whole
        with self._query(whole):
            return _Simplifier(self)(whole)

    def simplify_inside(self, expr: PrimExpr) -> PrimExpr:
        return _Simplifier(self).rewrite_children(expr)


class _Simplifier(Rewriter):
    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer

    def rewrite_Buffer(self, node: Any) -> Any:
        """Buffers are compared by identity, so their sizes are not simplified."""
        return node

    def rewrite_BinaryOp(self, node: BinaryOp) -> PrimExpr:
        if node.op in COMPARISONS and dt.is_int(node.a.dtype):
            return self._comparison(node)
        if dt.is_int(node.dtype) and dt.is_signed(node.dtype) and node.op in _ARITHMETIC:
            return self._shorter(node)
        a, b = self(node.a), self(node.b)
        return node if a is node.a and b is node.b else binary(node.op, a, b)

    def rewrite_Cast(self, node: Cast) -> PrimExpr:
        if dt.is_int(node.dtype) and dt.is_int(node.value.dtype) and dt.is_signed(node.dtype):
            return self._shorter(node)
        value = self(node.value)
        return node if value is node.value else cast(node.dtype, value)

    def _shorter(self, node: PrimExpr) -> PrimExpr:
        """The expression of the linear form, unless it has more nodes than ``node`` with simplified children."""
        built = self.analyzer.build(self.analyzer.linear(node), node.dtype)
        if isinstance(built, IntImm | Var) or _length(built) <= _length(node):
            return built
        if isinstance(node, Cast):
            return cast(node.dtype, self(node.value))
        assert isinstance(node, BinaryOp)
        return binary(node.op, self(node.a), self(node.b))

    def _comparison(self, node: BinaryOp) -> PrimExpr:
        known = self.analyzer.truth(node)
        return binary(node.op, self(node.a), self(node.b)) if known is None else IntImm(int(known), "bool")

    def rewrite_Select(self, node: Select) -> PrimExpr:
        """Each node is simplified once: comparing its two values simplifies the nodes in them again."""
        selects = self.analyzer.known.selects
        found = selects.get(id(node))
        if found is None:
            result = self._select(node)
            found = selects[id(node)] = node, result
            selects[id(result)] = result, result
        return found[1]

    def _select(self, node: Select) -> PrimExpr:
        condition = self(node.condition)
        if isinstance(condition, IntImm):
            return self(node.true_value if condition.value else node.false_value)
        true_value, false_value = self(node.true_value), self(node.false_value)
        if dt.is_int(node.dtype) and self.analyzer.prove_equal(true_value, false_value):
            return true_value
        if condition is node.condition and true_value is node.true_value and false_value is node.false_value:
            return node
        return Select(condition, true_value, false_value)

    def rewrite_Not(self, node: Not) -> PrimExpr:
        value = self(node.value)
        return IntImm(1 - value.value, "bool") if isinstance(value, IntImm) else Not(value)

    def rewrite_Let(self, node: Let) -> PrimExpr:
        value = self(node.value)
        self.analyzer.let(node.var, value)
        body = self(node.body)
        return node if value is node.value and body is node.body else Let(node.var, value, body)


def _length(expr: PrimExpr) -> int:
    return len(nodes_of(expr, BinaryOp, Cast, IntImm, Var))


def simplify(expr: ExprLike, ranges: Mapping[Var, ExprLike] | None = None) -> PrimExpr:
    """Simplify under the given ranges ``0 <= var < extent``."""
    return Analyzer(ranges).simplify(expr)
