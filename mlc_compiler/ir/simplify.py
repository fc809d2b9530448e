"""Simplification of integer expressions and proofs about them.

Integer expressions are brought to a linear form ``const + sum(coefficient * atom)``, where an atom is a variable or an
expression that is not linear. ``x % c`` enters as ``x - c * (x // c)``, so that ``(i // 4) * 4 + i % 4`` cancels to
``i``; on the way out the pattern is folded back to ``%``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from . import dtype as dt
from .expr import (
    COMPARISONS,
    BinaryOp,
    Cast,
    ExprLike,
    FloatImm,
    IntImm,
    Not,
    PrimExpr,
    Select,
    Var,
    as_expr,
    binary,
    const,
    is_const,
)
from .visitor import Rewriter, field_names, walk

Key = tuple[Any, ...]


def key(node: Any) -> Key:
    """A hashable value that is equal for expressions equal in structure (variables and buffers by identity)."""
    if isinstance(node, IntImm | FloatImm):
        return (type(node).__name__, node.value, node.dtype)
    if isinstance(node, tuple):
        return tuple(key(item) for item in node)
    if not isinstance(node, PrimExpr):
        return (node,) if isinstance(node, str) else (id(node),)
    if isinstance(node, Var):
        return ("Var", id(node))
    return (type(node).__name__, *(key(getattr(node, name)) for name in field_names(type(node))))


@dataclass
class Linear:
    """``const + sum(coefficient * atom)``; coefficients are never zero."""

    const: int = 0
    terms: dict[Key, tuple[PrimExpr, int]] = field(default_factory=dict)

    def add(self, other: Linear, scale: int = 1) -> Linear:
        result = Linear(self.const + scale * other.const, dict(self.terms))
        for k, (atom, coefficient) in other.terms.items():
            total = result.terms[k][1] + scale * coefficient if k in result.terms else scale * coefficient
            if total:
                result.terms[k] = (atom, total)
            else:
                result.terms.pop(k, None)
        return result

    def without(self, k: Key) -> Linear:
        return Linear(self.const, {other: v for other, v in self.terms.items() if other != k})


class Analyzer:
    """Simplifies and proves under known ranges of variables.

    ``bind(var, extent)`` states ``0 <= var < extent``. A variable that is not bound is a size: at least ``least``.
    """

    def __init__(self, ranges: Mapping[Var, ExprLike] | None = None, least: int = 0):
        self.extents: dict[int, PrimExpr] = {}
        self.keep: list[Var] = []
        self.least = least
        for var, extent in (ranges or {}).items():
            self.bind(var, extent)

    def bind(self, var: Var, extent: ExprLike) -> None:
        self.extents[id(var)] = as_expr(extent)
        self.keep.append(var)

    # -- linear forms -------------------------------------------------------------------------------------------

    def linear(self, expr: PrimExpr) -> Linear:
        if isinstance(expr, IntImm):
            return Linear(expr.value)
        if isinstance(expr, BinaryOp):
            if expr.op in ("+", "-"):
                return self.linear(expr.a).add(self.linear(expr.b), 1 if expr.op == "+" else -1)
            if expr.op == "*":
                return self._product(expr)
            if expr.op in ("//", "%") and isinstance(expr.b, IntImm) and expr.b.value > 0:
                numerator = self.linear(expr.a)
                quotient = self._floordiv(numerator, expr.b.value, expr.dtype)
                return quotient if expr.op == "//" else numerator.add(quotient, -expr.b.value)
            if expr.op in ("//", "%") and not isinstance(expr.b, IntImm):
                return self._symbolic_division(expr)
            if expr.op in ("min", "max"):
                return self._min_max(expr)
        return self._atom(self._inner(expr))

    def _atom(self, expr: PrimExpr) -> Linear:
        return Linear(expr.value) if isinstance(expr, IntImm) else Linear(0, {key(expr): (expr, 1)})

    def _product(self, expr: BinaryOp) -> Linear:
        a, b = self.linear(expr.a), self.linear(expr.b)
        if a.terms and b.terms:
            left, right = sorted((self.build(a, expr.dtype), self.build(b, expr.dtype)), key=_order)
            return self._atom(BinaryOp("*", left, right))
        scaled, factor = (a, b.const) if not b.terms else (b, a.const)
        return Linear().add(scaled, factor)

    def _min_max(self, expr: BinaryOp) -> Linear:
        a, b = self.linear(expr.a), self.linear(expr.b)
        if self.nonnegative(b.add(a, -1)):
            return a if expr.op == "min" else b
        if self.nonnegative(a.add(b, -1)):
            return b if expr.op == "min" else a
        return self._atom(BinaryOp(expr.op, self.build(a, expr.dtype), self.build(b, expr.dtype)))

    def _floordiv(self, numerator: Linear, divisor: int, dtype: str) -> Linear:
        whole, rest = Linear(numerator.const // divisor), Linear(numerator.const % divisor)
        for k, (atom, coefficient) in numerator.terms.items():
            if coefficient % divisor == 0:
                whole.terms[k] = (atom, coefficient // divisor)
            else:
                rest.terms[k] = (atom, coefficient)
        low, high = self.bounds(rest)
        if low is not None and high is not None and low // divisor == high // divisor:
            whole.const += low // divisor
            return whole
        if self._within(rest, divisor):
            return whole
        coarse = self._without_small_terms(rest, divisor)
        if coarse is not None:
            return whole.add(self._floordiv(coarse, divisor, dtype))
        common = gcd(divisor, *(c for _, c in rest.terms.values()))
        if common > 1:
            divisor //= common
            terms = {k: (atom, c // common) for k, (atom, c) in rest.terms.items()}
            return whole.add(self._floordiv(Linear(rest.const // common, terms), divisor, dtype))
        return whole.add(self._atom(self._nested(rest, divisor, dtype)))

    def _without_small_terms(self, rest: Linear, divisor: int) -> Linear | None:
        """``(16 * o + i) // 1536`` is ``(16 * o) // 1536`` while ``0 <= i < 16``: drop what a step hides."""
        for step in sorted({abs(c) for _, c in rest.terms.values()}, reverse=True):
            if step <= 1 or divisor % step:
                continue
            large = {k: t for k, t in rest.terms.items() if t[1] % step == 0}
            small = Linear(rest.const % step, {k: t for k, t in rest.terms.items() if k not in large})
            if (small.terms or small.const) and self._within(small, step):
                return Linear(rest.const - rest.const % step, large)
        return None

    def _symbolic_division(self, expr: BinaryOp) -> Linear:
        numerator, divisor = self.linear(expr.a), self.linear(expr.b)
        if self.nonnegative(numerator) and self.nonnegative(divisor.add(numerator, -1).add(Linear(-1))):
            return Linear() if expr.op == "//" else numerator
        return self._atom(BinaryOp(expr.op, self.build(numerator, expr.dtype), self.build(divisor, expr.dtype)))

    def _nested(self, rest: Linear, divisor: int, dtype: str) -> PrimExpr:
        if rest.const == 0 and len(rest.terms) == 1:
            atom, coefficient = next(iter(rest.terms.values()))
            inner = isinstance(atom, BinaryOp) and atom.op == "//" and isinstance(atom.b, IntImm)
            if inner and coefficient == 1:
                return BinaryOp("//", atom.a, const(atom.b.value * divisor, dtype))  # type: ignore[attr-defined]
        return BinaryOp("//", self.build(rest, dtype), const(divisor, dtype))

    def _within(self, form: Linear, divisor: int) -> bool:
        upper = Linear(divisor - 1).add(form, -1)
        return self.nonnegative(form) and self.nonnegative(upper)

    def build(self, form: Linear, dtype: str) -> PrimExpr:
        """The expression of a linear form, terms in order of first occurrence, ``%`` restored."""
        terms, constant = dict(form.terms), form.const
        mods: list[tuple[PrimExpr, int]] = []
        for k, (atom, coefficient) in form.terms.items():
            folded = self._fold_mod(terms, constant, atom, coefficient) if k in terms else None
            if folded is not None:
                terms, constant, mod, scale = folded
                mods.append((mod, scale))
        items = [*terms.values(), *mods]
        positives = [binary("*", atom, const(c, dtype)) for atom, c in items if c > 0]
        negatives = [binary("*", atom, const(-c, dtype)) for atom, c in items if c < 0]
        if constant > 0 or not positives:
            positives.insert(0 if not positives else len(positives), const(constant, dtype))
        elif constant < 0:
            negatives.append(const(-constant, dtype))
        result = positives[0]
        for term in positives[1:]:
            result = BinaryOp("+", result, term)
        for term in negatives:
            result = BinaryOp("-", result, term)
        return result

    def _fold_mod(
        self, terms: dict[Key, tuple[PrimExpr, int]], constant: int, atom: PrimExpr, coefficient: int
    ) -> tuple[dict[Key, tuple[PrimExpr, int]], int, PrimExpr, int] | None:
        if not (isinstance(atom, BinaryOp) and atom.op == "//" and isinstance(atom.b, IntImm)):
            return None
        divisor = atom.b.value
        if coefficient % divisor:
            return None
        scale = -coefficient // divisor
        numerator = self.linear(atom.a)
        for k, (_, c) in numerator.terms.items():
            if k not in terms or terms[k][1] != scale * c:
                return None
        left = Linear(constant, terms).add(numerator, -scale).add(self._atom(atom), -coefficient)
        if numerator.const and left.const and not constant:
            return None
        return left.terms, left.const, BinaryOp("%", atom.a, atom.b), scale

    # -- bounds and proofs --------------------------------------------------------------------------------------

    def bounds(self, form: Linear) -> tuple[int | None, int | None]:
        """Constant bounds of a linear form, both inclusive; None where there is none."""
        low: int | None = form.const
        high: int | None = form.const
        for atom, coefficient in form.terms.values():
            lo, hi = self._atom_bounds(atom)
            if coefficient < 0:
                lo, hi = hi, lo
            low = None if low is None or lo is None else low + coefficient * lo
            high = None if high is None or hi is None else high + coefficient * hi
        return low, high

    def _atom_bounds(self, atom: PrimExpr) -> tuple[int | None, int | None]:
        if isinstance(atom, Var):
            if id(atom) not in self.extents:
                return (self.least, None) if atom.dtype == "int64" else (None, None)
            high = self.bounds(self.linear(self.extents[id(atom)]))[1]
            return 0, None if high is None else high - 1
        if isinstance(atom, BinaryOp):
            return self._binary_bounds(atom)
        if isinstance(atom, Select):
            yes, no = self.bounds(self.linear(atom.true_value)), self.bounds(self.linear(atom.false_value))
            return _known(yes[0], no[0], min), _known(yes[1], no[1], max)
        if isinstance(atom, Cast) and (atom.value.dtype == "bool"):
            return 0, 1
        if dt.is_int(atom.dtype) and not dt.is_signed(atom.dtype) and dt.bits(atom.dtype) <= 32:
            return 0, (1 << dt.bits(atom.dtype)) - 1
        return None, None

    def _binary_bounds(self, atom: BinaryOp) -> tuple[int | None, int | None]:
        a, b = self.bounds(self.linear(atom.a)), self.bounds(self.linear(atom.b))
        if atom.op == "//" and is_const(atom.b):
            divisor = atom.b.value  # type: ignore[attr-defined]
            return tuple(None if x is None else x // divisor for x in a)  # type: ignore[return-value]
        if atom.op == "%" and is_const(atom.b):
            return 0, atom.b.value - 1  # type: ignore[attr-defined]
        if atom.op == "&" and b[0] is not None and b[0] == b[1] and b[0] >= 0:
            return 0, b[0]
        if atom.op == "min":
            return _known(a[0], b[0], min), _either(a[1], b[1], min)
        if atom.op == "max":
            return _either(a[0], b[0], max), _known(a[1], b[1], max)
        if atom.op == "*" and a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
            return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
        return None, None

    def nonnegative(self, form: Linear, depth: int = 8) -> bool:
        """Whether ``form >= 0`` can be proved."""
        low, _ = self.bounds(form)
        if low is not None and low >= 0:
            return True
        if depth == 0:
            return False
        for k, (atom, coefficient) in form.terms.items():
            relaxed = self._relax(atom, coefficient)
            if relaxed is not None and self.nonnegative(form.without(k).add(relaxed), depth - 1):
                return True
        return False

    def _relax(self, atom: PrimExpr, coefficient: int) -> Linear | None:
        """A linear form not greater than ``coefficient * atom``."""
        if isinstance(atom, Var) and id(atom) in self.extents and coefficient < 0:
            return Linear(-coefficient).add(self.linear(self.extents[id(atom)]), coefficient)
        if isinstance(atom, BinaryOp):
            if atom.op == "//" and isinstance(atom.b, IntImm) and coefficient % atom.b.value == 0:
                scale = coefficient // atom.b.value
                slack = 0 if scale < 0 else -(atom.b.value - 1) * scale
                return Linear(slack).add(self.linear(atom.a), scale)
            if (atom.op == "min" and coefficient < 0) or (atom.op == "max" and coefficient > 0):
                for side in (atom.a, atom.b):
                    if isinstance(side, IntImm | Var | BinaryOp):
                        return Linear().add(self.linear(side), coefficient)
        return None

    def prove(self, condition: PrimExpr) -> bool:
        """Whether a comparison (or conjunction) always holds. False when it may not, or when that is not known."""
        if isinstance(condition, IntImm):
            return bool(condition.value)
        if isinstance(condition, BinaryOp):
            if condition.op == "and":
                return self.prove(condition.a) and self.prove(condition.b)
            if condition.op == "or":
                return self.prove(condition.a) or self.prove(condition.b)
            if condition.op in COMPARISONS and dt.is_int(condition.a.dtype):
                return self._prove_comparison(condition.op, self.linear(condition.a), self.linear(condition.b))
        return False

    def _prove_comparison(self, op: str, a: Linear, b: Linear) -> bool:
        difference = b.add(a, -1)
        if op == "==":
            return not difference.terms and difference.const == 0
        if op in ("<", "<="):
            return self.nonnegative(difference.add(Linear(-1 if op == "<" else 0)))
        if op in (">", ">="):
            return self._prove_comparison("<" if op == ">" else "<=", b, a)
        return self._prove_comparison("<", a, b) or self._prove_comparison("<", b, a)

    def prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        return self._prove_comparison("==", self.linear(as_expr(a)), self.linear(as_expr(b)))

    # -- simplification -----------------------------------------------------------------------------------------

    def simplify(self, expr: ExprLike) -> PrimExpr:
        """An equal expression, usually shorter."""
        return _Simplifier(self)(as_expr(expr))

    def _inner(self, expr: PrimExpr) -> PrimExpr:
        return _Simplifier(self).rewrite_children(expr)


def _order(expr: PrimExpr) -> tuple[str, str]:
    """The order of factors: by what is printed, and only where that is the same by identity."""
    shown = [str([getattr(n, name, "") for name in ("op", "name", "dtype")]) for n in walk(expr)]
    return "".join(shown), str(key(expr))


def _known(a: int | None, b: int | None, choose: Callable[[int, int], int]) -> int | None:
    """The choice between two bounds; no bound unless both are there."""
    return None if a is None or b is None else choose(a, b)


def _either(a: int | None, b: int | None, choose: Callable[[int, int], int]) -> int | None:
    """The choice between two bounds, of which one is enough."""
    return choose(a, b) if a is not None and b is not None else (b if a is None else a)


class _Simplifier(Rewriter):
    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer

    def rewrite_Buffer(self, node: Any) -> Any:
        """Buffers are known by identity; their sizes stay as they are."""
        return node

    def rewrite_BinaryOp(self, node: BinaryOp) -> PrimExpr:
        if node.op in COMPARISONS and dt.is_int(node.a.dtype):
            return self._comparison(node)
        if dt.is_int(node.dtype) and dt.is_signed(node.dtype) and node.op in ("+", "-", "*", "//", "%", "min", "max"):
            return self.analyzer.build(self.analyzer.linear(node), node.dtype)
        a, b = self(node.a), self(node.b)
        return node if a is node.a and b is node.b else binary(node.op, a, b)

    def _comparison(self, node: BinaryOp) -> PrimExpr:
        if self.analyzer.prove(node):
            return IntImm(1, "bool")
        opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}[node.op]
        if self.analyzer.prove(BinaryOp(opposite, node.a, node.b)):
            return IntImm(0, "bool")
        return binary(node.op, self(node.a), self(node.b))

    def rewrite_Select(self, node: Select) -> PrimExpr:
        condition = self(node.condition)
        if isinstance(condition, IntImm):
            return self(node.true_value if condition.value else node.false_value)
        true_value, false_value = self(node.true_value), self(node.false_value)
        if condition is node.condition and true_value is node.true_value and false_value is node.false_value:
            return node
        return Select(condition, true_value, false_value)

    def rewrite_Not(self, node: Not) -> PrimExpr:
        value = self(node.value)
        return IntImm(1 - value.value, "bool") if isinstance(value, IntImm) else Not(value)


def simplify(expr: ExprLike, ranges: Mapping[Var, ExprLike] | None = None) -> PrimExpr:
    """Simplify under the given ranges ``0 <= var < extent``."""
    return Analyzer(ranges).simplify(expr)
