"""Proofs that a linear form is nonnegative, by replacing terms with their bounds; comparisons are reduced to these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from . import dtype as dt
from .expr import COMPARISONS, BinaryOp, Cast, ExprLike, IntImm, Not, PrimExpr, Select, Var, as_expr
from .linear import Key, Linear, factors, key, of_atom, product
from .normal_form import NormalForm
from .visitor import nodes_of

ATTEMPTS = 80
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass
class _Search:
    """State of one proof: results of the forms tried so far, and how many more forms may be tried."""

    left: int = ATTEMPTS
    results: dict[Key, bool] = field(default_factory=dict)


class Prover(NormalForm):
    """Proves comparisons of integer expressions. Incomplete: a condition that is not proved may still hold."""

    def nonnegative(self, form: Linear) -> bool:
        if self._is_open():
            return self._nonnegative(form)
        with self._query(*(atom for atom, _ in form.terms.values())):
            return self._nonnegative(form)

    def _nonnegative(self, form: Linear) -> bool:
        identity = form.identity()
        if identity not in self.known.proofs:
            self.known.proofs[identity] = form, self._prove_form(form, _Search())
        return self.known.proofs[identity][1]

    def _prove_form(self, form: Linear, search: _Search) -> bool:
        form = form.reduced()
        low, high = self._bounds(form)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        identity = form.identity()
        if identity in search.results or search.left == 0:
            return search.results.get(identity, False)
        search.left -= 1
        search.results[identity] = False
        for k, (atom, coefficient) in sorted(form.terms.items(), key=self._outwards):
            for sufficient in self._relaxed(form.without(k), atom, coefficient):
                if all(self._prove_form(f, search) for f in sufficient):
                    search.results[identity] = True
                    return True
        return False

    def _outwards(self, term: tuple[Key, tuple[PrimExpr, int]]) -> int:
        """The sort key that replaces terms of inner loops first."""
        atom = term[1][0]
        if isinstance(atom, Var):
            return -self.ranks.get(id(atom), 0)
        found = self.known.ranks.get(id(atom))
        if found is None:
            variables = [id(var) for var in nodes_of(atom, Var)]
            self._met.update(variables)
            rank = max((self.ranks.get(var, 0) for var in variables), default=0)
            found = self.known.ranks[id(atom)] = atom, rank
        return -found[1]

    def _relaxed(self, others: Linear, atom: PrimExpr, coefficient: int) -> Iterator[list[Linear]]:
        """Sufficient conditions for ``others + coefficient * atom >= 0``: lists of forms that must all be >= 0."""
        if isinstance(atom, BinaryOp) and atom.op in ("min", "max"):
            sides = [others.add(self._linear(s), coefficient) for s in (atom.a, atom.b)]
            if (atom.op == "min") == (coefficient > 0):
                yield sides
            else:
                yield from ([side] for side in sides)
        elif isinstance(atom, Select):
            yield [others.add(self._linear(s), coefficient) for s in (atom.true_value, atom.false_value)]
        elif isinstance(atom, BinaryOp) and atom.op == "//" and isinstance(atom.b, IntImm) and atom.b.value > 0:
            yield from self._divided(others, atom.a, atom.b.value, coefficient)
        else:
            parts = factors(atom)
            for i, part in enumerate(parts):
                rest = product(parts[:i] + parts[i + 1 :])
                if len(parts) == 1 or (self.bounds(rest)[0] or -1) >= 0 or self._is_natural(parts[:i] + parts[i + 1 :]):
                    yield from self._bounded(others, part, rest, coefficient)
            yield from self._by_product(others, parts, coefficient)

    def _is_natural(self, parts: list[PrimExpr]) -> bool:
        lows = [self.bounds_of(p)[0] for p in parts]
        return all(low is not None and low >= 0 for low in lows)

    def _divided(self, others: Linear, numerator: PrimExpr, divisor: int, coefficient: int) -> Iterator[list[Linear]]:
        """Bound ``x // 12`` by ``x``, or as ``(x // 4) // 3`` where ``x // 4`` is among the other terms."""
        yield [self._by_numerator(others, numerator, divisor, coefficient)]
        for atom, _ in others.terms.values():
            if isinstance(atom, BinaryOp) and atom.op == "//" and isinstance(atom.b, IntImm) and atom.b.value > 0:
                if divisor % atom.b.value == 0 and key(atom.a) == key(numerator):
                    yield [self._by_numerator(others, atom, divisor // atom.b.value, coefficient)]

    def _by_numerator(self, others: Linear, numerator: PrimExpr, divisor: int, coefficient: int) -> Linear:
        """``divisor`` times the form, ``divisor * (x // divisor)`` replaced by its bound ``x - divisor + 1`` or ``x``.

        For a coefficient of -1 this is exact: ``others >= x // divisor`` iff ``divisor * others >= x - divisor + 1``.
        """
        slack = -(divisor - 1) * coefficient if coefficient >= -1 else 0
        return others.scaled(divisor).add(self._linear(numerator), coefficient).add(Linear(slack))

    def _bounded(self, others: Linear, part: PrimExpr, rest: Linear, coefficient: int) -> Iterator[list[Linear]]:
        """Replace one factor by its bound; ``rest``, the product of the other factors, is nonnegative."""
        limit: Linear | None = None
        if coefficient < 0 and isinstance(part, Var) and id(part) in self.extents:
            limit = self._linear(self.extents[id(part)]).add(Linear(-1))
        elif coefficient < 0 and isinstance(part, Cast) and isinstance(part.value, Var):
            extent = self.extents.get(id(part.value))
            limit = None if extent is None else self._linear(Cast(part.dtype, extent)).add(Linear(-1))
        elif coefficient < 0 and isinstance(part, BinaryOp) and part.op == "%" and not isinstance(part.b, IntImm):
            divisor = self._linear(part.b).add(Linear(-1))
            limit = divisor if self.nonnegative(divisor) else None
        elif coefficient < 0 and isinstance(part, BinaryOp) and part.op == "//" and self._is_natural([part.b]):
            limit = self._linear(BinaryOp("//", self.build(self._upper_bound(part.a), part.dtype), part.b))
        elif coefficient > 0 and rest.terms:
            low = self.bounds_of(part)[0]
            limit = Linear(low) if low is not None and low > 0 else None
        if limit is not None:
            yield [others.add(self.multiply(limit, rest, part.dtype), coefficient)]

    def _upper_bound(self, expr: PrimExpr) -> Linear:
        """An upper bound of ``expr``: bound variables with positive coefficients at the end of their range."""
        form = self._linear(expr)
        for atom, coefficient in list(form.terms.values()):
            if coefficient > 0 and isinstance(atom, Var) and id(atom) in self.extents:
                last = self._linear(self.extents[id(atom)]).add(Linear(-1))
                form = form.add(of_atom(atom), -coefficient).add(last, coefficient)
        return form

    def _by_product(self, others: Linear, parts: list[PrimExpr], coefficient: int) -> Iterator[list[Linear]]:
        """Bound ``(x // y) * y`` by ``x - y + 1`` or ``x`` where y is positive."""
        for i, part in enumerate(parts):
            if not (isinstance(part, BinaryOp) and part.op == "//"):
                continue
            left = [p for j, p in enumerate(parts) if j != i]
            match = next((j for j, p in enumerate(left) if of_atom(p).identity() == of_atom(part.b).identity()), None)
            divisor = self._linear(part.b)
            if match is None or not self.nonnegative(divisor.add(Linear(-1))):
                continue
            rest = left[:match] + left[match + 1 :]
            if not self._is_natural(rest):
                continue
            bound = self._linear(part.a)
            if coefficient > 0:
                bound = bound.add(divisor, -1).add(Linear(1))
            yield [others.add(self.multiply(bound, product(rest), part.dtype), coefficient)]

    # -- conditions ---------------------------------------------------------------------------------------------

    def prove(self, condition: PrimExpr) -> bool:
        """Whether a condition provably always holds."""
        with self._query(condition):
            return self._proved(condition)

    def truth(self, condition: PrimExpr) -> bool | None:
        with self._query(condition):
            if self._proved(condition):
                return True
            return False if self._refuted(condition) else None

    def prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two integer expressions are provably always equal."""
        x, y = as_expr(a), as_expr(b)
        with self._query(x, y):
            return self._compared("==", self._linear(x), self._linear(y), exact=False)

    def _proved(self, condition: PrimExpr) -> bool:
        if isinstance(condition, IntImm):
            return bool(condition.value)
        if isinstance(condition, Not):
            return self._refuted(condition.value)
        if not isinstance(condition, BinaryOp):
            return False
        if condition.op in ("and", "or"):
            a, b = (self._proved(side) for side in (condition.a, condition.b))
            return (a and b) if condition.op == "and" else (a or b)
        if condition.op not in COMPARISONS or not dt.is_int(condition.a.dtype):
            return False
        x, y = self._linear(condition.a), self._linear(condition.b)
        exact = all(self.is_exact(f, condition.a.dtype) for f in (x, y))
        return self._compared(condition.op, x, y, exact)

    def _refuted(self, condition: PrimExpr) -> bool:
        """Whether a condition provably never holds."""
        if isinstance(condition, IntImm):
            return not condition.value
        if isinstance(condition, Not):
            return self._proved(condition.value)
        if isinstance(condition, BinaryOp) and condition.op in ("and", "or"):
            a, b = (self._refuted(side) for side in (condition.a, condition.b))
            return (a or b) if condition.op == "and" else (a and b)
        if isinstance(condition, BinaryOp) and condition.op in COMPARISONS:
            return self._proved(BinaryOp(OPPOSITE[condition.op], condition.a, condition.b))
        return False

    def _compared(self, op: str, a: Linear, b: Linear, exact: bool) -> bool:
        """Whether a comparison holds. When ``exact`` is False values may wrap around: only equal forms compare."""
        difference = b.add(a, -1)
        if difference.is_zero:
            return op in ("==", "<=", ">=")
        if not exact:
            return False
        if op in (">", ">="):
            op, difference = op.replace(">", "<"), difference.scaled(-1)
        if op in ("<", "<="):
            return self.nonnegative(difference.add(Linear(-1 if op == "<" else 0)))
        if op == "==":
            return self.nonnegative(difference) and self.nonnegative(difference.scaled(-1))
        above, below = difference.add(Linear(-1)), difference.scaled(-1).add(Linear(-1))
        return self.nonnegative(above) or self.nonnegative(below)
