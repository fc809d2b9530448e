"""Linear forms ``const + sum(coefficient * atom)``, the canonical form of integer expressions.

An atom is a variable, a nonlinear expression, or a product of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import gcd
from types import MappingProxyType
from typing import Any, NamedTuple

from . import dtype as dt
from .expr import BinaryOp, FloatImm, IntImm, PrimExpr, Var
from .visitor import field_names, walk

Key = tuple[Any, ...]


def key(node: Any) -> Key:
    """A hashable value, equal for structurally equal expressions (variables and buffers by identity)."""
    return _keys[type(node)](node)


class _Keys(dict[type, Callable[[Any], Key]]):
    """Table from a class to the function that computes the key of its values."""

    def __missing__(self, cls: type) -> Callable[[Any], Key]:
        self[cls] = found = self._of(cls)
        return found

    @staticmethod
    def _of(cls: type) -> Callable[[Any], Key]:
        name = cls.__name__
        if issubclass(cls, IntImm | FloatImm):
            return lambda node: (name, node.value, node.dtype)
        if issubclass(cls, tuple):
            return lambda items: tuple([key(item) for item in items])
        if issubclass(cls, Var):
            return lambda var: ("Var", id(var))
        if issubclass(cls, BinaryOp):
            return lambda node: (name, (node.op,), key(node.a), key(node.b))
        if issubclass(cls, PrimExpr):
            return lambda node: (name, *[key(getattr(node, field)) for field in field_names(cls)])
        return (lambda text: (text,)) if issubclass(cls, str) else lambda other: (id(other),)


_keys = _Keys()


Terms = Mapping[Key, tuple[PrimExpr, int]]


class Linear(NamedTuple):
    """``const + sum(coefficient * atom)``; coefficients are never zero. Forms are shared and immutable."""

    const: int = 0
    terms: Terms = MappingProxyType({})

    def add(self, other: Linear, scale: int = 1) -> Linear:
        """``self + scale * other``"""
        if not other.terms:
            return Linear(self.const + scale * other.const, self.terms)
        terms = dict(self.terms)
        for k, (atom, coefficient) in other.terms.items():
            combined = terms[k][1] + scale * coefficient if k in terms else scale * coefficient
            if combined:
                terms[k] = (atom, combined)
            else:
                terms.pop(k, None)
        return Linear(self.const + scale * other.const, terms)

    def without(self, k: Key) -> Linear:
        return Linear(self.const, {other: v for other, v in self.terms.items() if other != k})

    def scaled(self, factor: int) -> Linear:
        return self if factor == 1 else Linear().add(self, factor)

    def reduced(self) -> Linear:
        """The form divided by the gcd of its coefficients (the constant rounded down): nonnegative iff this one is."""
        common = gcd(*(c for _, c in self.terms.values()))
        if common <= 1:
            return self
        return Linear(self.const // common, {k: (atom, c // common) for k, (atom, c) in self.terms.items()})

    def identity(self) -> Key:
        """A hashable value that is equal for equal forms."""
        return self.const, frozenset((k, c) for k, (_, c) in self.terms.items())

    @property
    def is_zero(self) -> bool:
        return not self.terms and self.const == 0


def of_atom(atom: PrimExpr) -> Linear:
    """The form of a single atom or integer immediate."""
    return Linear(atom.value) if isinstance(atom, IntImm) else Linear(0, {key(atom): (atom, 1)})


def additive(expr: PrimExpr) -> Linear:
    """The linear form of a sum without rewriting it: quotients, remainders and products of variables are atoms."""
    if isinstance(expr, IntImm):
        return Linear(expr.value)
    if isinstance(expr, BinaryOp) and expr.op in ("+", "-"):
        return additive(expr.a).add(additive(expr.b), 1 if expr.op == "+" else -1)
    if isinstance(expr, BinaryOp) and expr.op == "*":
        for term, factor in ((expr.a, expr.b), (expr.b, expr.a)):
            if isinstance(factor, IntImm):
                return Linear().add(additive(term), factor.value)
    return of_atom(expr)


def factors(atom: PrimExpr) -> list[PrimExpr]:
    """The factors of a product of atoms."""
    if isinstance(atom, BinaryOp) and atom.op == "*":
        return factors(atom.a) + factors(atom.b)
    return [atom]


def product(parts: Sequence[PrimExpr]) -> Linear:
    """The form of a product of atoms, factors in canonical order; 1 when there are none."""
    if not parts:
        return Linear(1)
    return of_atom(reduce(lambda a, b: BinaryOp("*", a, b), sorted(parts, key=order)))


def order(expr: PrimExpr) -> tuple[str, str]:
    """The sort key of factors: operators, names and dtypes first, so that the order is deterministic; then identity."""
    shown = [str([getattr(n, name, "") for name in ("op", "name", "dtype")]) for n in walk(expr)]
    return "".join(shown), str(key(expr))


def remove_factors(parts: Sequence[PrimExpr], wanted: Sequence[PrimExpr]) -> list[PrimExpr] | None:
    """``parts`` without one occurrence of each of ``wanted``; None when one is missing."""
    left = list(parts)
    for w in wanted:
        found = next((i for i, p in enumerate(left) if key(p) == key(w)), None)
        if found is None:
            return None
        del left[found]
    return left


def wrapped(value: int, dtype: str) -> int:
    """``value`` wrapped around to the range of a signed dtype."""
    half = 1 << (dt.bits(dtype) - 1)
    return (value + half) % (2 * half) - half
