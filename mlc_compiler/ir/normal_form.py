"""Conversion of integer expressions to linear forms and back.

``x % c`` is converted to ``x - c * (x // c)``, so that ``(i // 4) * 4 + i % 4`` cancels to ``i``; ``build`` folds the
pattern back to ``%``. Products are expanded, so that ``(i * m + j) // m`` is ``i`` if ``0 <= j < m``.
"""

from __future__ import annotations

from abc import abstractmethod
from math import gcd

from . import dtype as dt
from .expr import BinaryOp, Cast, IntImm, PrimExpr, Select, Var, binary, const, is_const
from .linear import Linear, Terms, additive, factors, of_atom, product, remove_factors, wrapped
from .ranges import Ranges

LARGEST_PRODUCT = 32
LONGEST_DIVISION = 8


class NormalForm(Ranges):
    """Converts expressions to linear form, given the ranges of their variables."""

    @abstractmethod
    def simplify_inside(self, expr: PrimExpr) -> PrimExpr:
        """The expression with simplified children."""

    @abstractmethod
    def truth(self, condition: PrimExpr) -> bool | None:
        """True if a condition always holds, False if it never does, None when neither can be proved."""

    def linear(self, expr: PrimExpr) -> Linear:
        if self._is_open():
            return self._linear(expr)
        with self._query(expr):
            return self._linear(expr)

    def _linear(self, expr: PrimExpr) -> Linear:
        found = self.known.forms.get(id(expr))
        if found is None:
            found = self.known.forms[id(expr)] = expr, self._form_of(expr)
        return found[1]

    def _form_of(self, expr: PrimExpr) -> Linear:
        if isinstance(expr, Var):
            self._met.add(id(expr))
            return of_atom(expr)
        found: Linear | None = None
        if isinstance(expr, BinaryOp) and dt.is_int(expr.dtype) and dt.is_signed(expr.dtype):
            found = self._of_operator(expr)
        elif isinstance(expr, Cast):
            found = self._of_cast(expr)
        elif isinstance(expr, Select) and dt.is_int(expr.dtype):
            found = self._of_select(expr)
        return of_atom(self.simplify_inside(expr)) if found is None else found

    def _of_operator(self, expr: BinaryOp) -> Linear | None:
        """The form of an operator on signed integers; None when the operator is an atom."""
        op, dtype = expr.op, expr.dtype
        a, b = self._linear(expr.a), self._linear(expr.b)
        if op in ("+", "-"):
            return self._joined(a.add(b, 1 if op == "+" else -1))
        if op == "*":
            return self.multiply(a, b, dtype)
        if op in ("<<", ">>", "&") and not b.terms:
            return self._of_bits(op, a, b.const, dtype)
        if not (self.is_exact(a, dtype) and self.is_exact(b, dtype)):
            return None
        if op in ("//", "%"):
            return self._divide(op, a, b, dtype)
        if op == "/" and b.const > 0 and not b.terms and self.nonnegative(a):
            return self._quotient(a, b.const, dtype)
        return self._min_max(op, a, b, dtype) if op in ("min", "max") else None

    def _of_bits(self, op: str, a: Linear, number: int, dtype: str) -> Linear | None:
        """The form of a shift, or of a mask ``2**n - 1``, as multiplication, division or remainder."""
        if op == "<<":
            return a.scaled(1 << number) if 0 <= number < dt.bits(dtype) else None
        divisor = 1 << number if op == ">>" else number + 1
        if not (0 < divisor < 1 << (dt.bits(dtype) - 1)) or divisor & (divisor - 1) or not self.is_exact(a, dtype):
            return None
        return self._divide("//" if op == ">>" else "%", a, Linear(divisor), dtype)

    def _of_cast(self, expr: Cast) -> Linear | None:
        """The form of a widening cast, distributed over the terms of its operand."""
        to, source = expr.dtype, expr.value.dtype
        if not (dt.is_int(to) and dt.is_int(source) and dt.is_signed(to) and dt.is_signed(source)):
            return None
        form = self._linear(expr.value)
        if dt.bits(to) < dt.bits(source) or not self.is_exact(form, source):
            return None
        result = Linear(form.const)
        for atom, coefficient in form.terms.values():
            result = result.add(of_atom(Cast(to, atom)), coefficient)
        return result

    def _of_select(self, expr: Select) -> Linear | None:
        known = self.truth(expr.condition)
        if known is not None:
            return self._linear(expr.true_value if known else expr.false_value)
        a, b = self._linear(expr.true_value), self._linear(expr.false_value)
        return a if a.add(b, -1).is_zero else None

    def _min_max(self, op: str, a: Linear, b: Linear, dtype: str) -> Linear:
        if self.nonnegative(b.add(a, -1)):
            return a if op == "min" else b
        if self.nonnegative(a.add(b, -1)):
            return b if op == "min" else a
        return of_atom(BinaryOp(op, self.build(a, dtype), self.build(b, dtype)))

    def multiply(self, a: Linear, b: Linear, dtype: str) -> Linear:
        """The product of two forms, expanded unless that gives more than ``LARGEST_PRODUCT`` terms."""
        if not a.terms or not b.terms:
            return b.scaled(a.const) if not a.terms else a.scaled(b.const)
        if len(a.terms) * len(b.terms) > LARGEST_PRODUCT:
            return product([self.build(a, dtype), self.build(b, dtype)])
        result = a.scaled(b.const).add(b.scaled(a.const)).add(Linear(-a.const * b.const))
        for x, m in a.terms.values():
            for y, n in b.terms.values():
                result = result.add(product(factors(x) + factors(y)), m * n)
        return result

    # -- division -----------------------------------------------------------------------------------------------

    def _divide(self, op: str, a: Linear, b: Linear, dtype: str) -> Linear | None:
        if b.terms:
            return self._divide_by_symbol(op, a, b, dtype)
        if b.const == 0:
            return None
        sign = 1 if b.const > 0 else -1
        quotient = self._quotient(a.scaled(sign), abs(b.const), dtype)
        return quotient if op == "//" else a.add(quotient, -b.const)

    def _quotient(self, numerator: Linear, divisor: int, dtype: str) -> Linear:
        """The form of ``numerator // divisor`` for a positive divisor."""
        multiples = {k: (a, c // divisor) for k, (a, c) in numerator.terms.items() if c % divisor == 0}
        others = {k: term for k, term in numerator.terms.items() if term[1] % divisor}
        whole, rest = Linear(numerator.const // divisor, multiples), Linear(numerator.const % divisor, others)
        low, high = self.bounds(rest)
        if low is not None and high is not None and low // divisor == high // divisor:
            return Linear(whole.const + low // divisor, multiples)
        if self._within(rest, Linear(divisor)):
            return whole
        coarse = self._without_small_terms(rest, divisor)
        if coarse is not None:
            return whole.add(self._quotient(coarse, divisor, dtype))
        common = gcd(divisor, *(c for _, c in rest.terms.values()))
        if common > 1:
            terms = {k: (atom, c // common) for k, (atom, c) in rest.terms.items()}
            return whole.add(self._quotient(Linear(rest.const // common, terms), divisor // common, dtype))
        return whole.add(self._nested(rest, divisor, dtype))

    def _without_small_terms(self, rest: Linear, divisor: int) -> Linear | None:
        """``(16 * o + i) // 1536`` is ``(16 * o) // 1536`` if ``0 <= i < 16``: drop terms below a divisor's factor."""
        for step in sorted({abs(c) for _, c in rest.terms.values()}, reverse=True):
            if step <= 1 or divisor % step:
                continue
            large = {k: t for k, t in rest.terms.items() if t[1] % step == 0}
            small = Linear(rest.const % step, {k: t for k, t in rest.terms.items() if k not in large})
            if (small.terms or small.const) and self._within(small, Linear(step)):
                return Linear(rest.const - rest.const % step, large)
        return None

    def _nested(self, rest: Linear, divisor: int, dtype: str) -> Linear:
        """``rest // divisor``; ``(x // a) // b`` is ``x // (a * b)``."""
        if rest.const == 0 and len(rest.terms) == 1:
            atom, coefficient = next(iter(rest.terms.values()))
            if coefficient == 1 and isinstance(atom, BinaryOp) and atom.op == "//" and _is_positive(atom.b):
                return self._quotient(self._linear(atom.a), atom.b.value * divisor, dtype)  # type: ignore[attr-defined]
        return of_atom(BinaryOp("//", self.build(rest, dtype), const(divisor, dtype)))

    def _divide_by_symbol(self, op: str, a: Linear, b: Linear, dtype: str) -> Linear | None:
        if a.is_zero:
            return Linear()
        quotient, rest = Linear(), a
        if self.nonnegative(b.add(Linear(-1))):
            quotient, rest = self._long_division(a, b, dtype)
        if (rest.is_zero and quotient.terms) or self._within(rest, b):
            return quotient if op == "//" else rest
        if self._within(rest.add(b), b):
            return quotient.add(Linear(-1)) if op == "//" else rest.add(b)
        divided = of_atom(BinaryOp(op, self.build(rest, dtype), self.build(b, dtype)))
        return quotient.add(divided) if op == "//" else divided

    def _joined(self, form: Linear) -> Linear:
        """``(x // y) * y + x % y`` for a positive symbol y is x."""
        for atom, coefficient in form.terms.values():
            if not (isinstance(atom, BinaryOp) and atom.op == "%" and not isinstance(atom.b, IntImm)):
                continue
            whole = product([BinaryOp("//", atom.a, atom.b), *factors(atom.b)])
            other = form.terms.get(next(iter(whole.terms)))
            positive = self.nonnegative(self._linear(atom.b).add(Linear(-1)))
            if other is not None and other[1] == coefficient and positive:
                parts = whole.add(of_atom(atom))
                return self._joined(form.add(parts, -coefficient).add(self._linear(atom.a), coefficient))
        return form

    def _long_division(self, a: Linear, b: Linear, dtype: str) -> tuple[Linear, Linear]:
        """Polynomial division by the leading term of ``b``: ``quotient, rest`` with ``a == quotient * b + rest``."""
        lead, scale = max(b.terms.values(), key=lambda t: len(factors(t[0])))
        quotient, rest = Linear(), a
        for _ in range(LONGEST_DIVISION):
            step = next((s for s in (_ratio(*t, lead, scale) for t in rest.terms.values()) if s is not None), None)
            if step is None:
                break
            quotient, rest = quotient.add(step), rest.add(self.multiply(step, b, dtype), -1)
        return quotient, rest

    def _within(self, form: Linear, divisor: Linear) -> bool:
        """Whether ``0 <= form < divisor``."""
        return self.nonnegative(form) and self.nonnegative(divisor.add(form, -1).add(Linear(-1)))

    # -- from linear forms to expressions -----------------------------------------------------------------------

    def build(self, form: Linear, dtype: str) -> PrimExpr:
        """The expression of a linear form, terms in order of first occurrence, ``%`` restored."""
        terms, constant = form.terms, form.const
        mods: list[tuple[PrimExpr, int]] = []
        for k, (atom, coefficient) in form.terms.items():
            folded = self._fold_mod(terms, constant, atom, coefficient) if k in terms else None
            if folded is not None:
                terms, constant, mod, scale = folded
                mods.append((mod, scale))
        items = [(atom, wrapped(c, dtype)) for atom, c in [*terms.values(), *mods]]
        constant = wrapped(constant, dtype)
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

    def with_remainders(self, form: Linear) -> Linear:
        """The form of an int64 expression with remainders as atoms, instead of in terms of quotients."""
        found = self.known.remainders.get(id(form))
        if found is None:
            found = self.known.remainders[id(form)] = form, additive(self.build(form, "int64"))
        return found[1]

    def _fold_mod(
        self, terms: Terms, constant: int, atom: PrimExpr, coefficient: int
    ) -> tuple[Terms, int, PrimExpr, int] | None:
        """``scale * (x - c * (x // c))`` among the terms becomes ``scale * (x % c)``."""
        if not (isinstance(atom, BinaryOp) and atom.op == "//" and _is_positive(atom.b)):
            return None
        divisor: int = atom.b.value  # type: ignore[attr-defined]
        if coefficient % divisor:
            return None
        scale = -coefficient // divisor
        numerator = self._linear(atom.a)
        for k, (_, c) in numerator.terms.items():
            if k not in terms or terms[k][1] != scale * c:
                return None
        left = Linear(constant, terms).add(numerator, -scale).add(of_atom(atom), -coefficient)
        if numerator.const and left.const and not constant:
            return None
        return left.terms, left.const, BinaryOp("%", atom.a, atom.b), scale


def _is_positive(expr: PrimExpr) -> bool:
    return is_const(expr) and expr.value > 0  # type: ignore[attr-defined]


def _ratio(atom: PrimExpr, coefficient: int, lead: PrimExpr, scale: int) -> Linear | None:
    """``coefficient * atom / (scale * lead)``; None when it does not divide evenly."""
    left = remove_factors(factors(atom), factors(lead))
    return None if left is None or coefficient % scale else product(left).scaled(coefficient // scale)
