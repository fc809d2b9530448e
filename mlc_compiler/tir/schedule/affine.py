"""Affine analysis of index expressions: intervals, iteration domains of guarded nests, dependence equations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...ir.expr import BinaryOp, Call, IntImm, PrimExpr, Select, Var, const, maximum, minimum
from ...ir.simplify import Analyzer, Linear, key
from ...ir.visitor import nodes_of, substitute
from ..nodes import BufferLoad

Key = tuple[Any, ...]
Bounds = tuple[PrimExpr, PrimExpr]
Extents = Mapping[Var, PrimExpr]


def mentions(node: object, ids: set[int] | frozenset[int]) -> bool:
    """Whether one of the variables (by identity) occurs in ``node``."""
    return any(id(var) in ids for var in nodes_of(node, Var))


@lru_cache(maxsize=256)
def second(var: Var) -> Var:
    """Return the copy of ``var`` used for the second assignment (memoized)."""
    return Var(var.name, var.dtype)


def is_one(expr: PrimExpr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 1


def equal(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether two integer expressions provably have the same value."""
    return analyzer.prove_equal(a, b) or (analyzer.prove(a <= b) and analyzer.prove(a >= b))


# -- intervals ----------------------------------------------------------------------------------------------------


def interval(expr: PrimExpr, inner: Extents, analyzer: Analyzer) -> Bounds | None:
    """Inclusive bounds of an integer expression while the ``inner`` variables run over ``[0, extent)``.

    The bounds are tight when the expression is monotonic in each variable; None where there is no simple bound.
    """
    found = _BoundsOver(inner, analyzer).of(analyzer.simplify(expr))
    return None if found is None else (analyzer.simplify(found[0]), analyzer.simplify(found[1]))


class _BoundsOver:
    def __init__(self, inner: Extents, analyzer: Analyzer):
        self.inner, self.analyzer = inner, analyzer
        self.ids = {id(v) for v in inner}

    def of(self, e: PrimExpr) -> Bounds | None:
        if not mentions(e, self.ids):
            return e, e
        if isinstance(e, Var):
            last = self.of(self.inner[e])
            return None if last is None else (const(0, e.dtype), last[1] - 1)
        if isinstance(e, BinaryOp):
            return self._binary(e)
        if isinstance(e, Select):
            return self._either(self.of(e.true_value), self.of(e.false_value))
        if isinstance(e, Call) and e.op == "if_then_else":
            return self._either(self.of(e.args[1]), self.of(e.args[2]))
        return None

    def _either(self, a: Bounds | None, b: Bounds | None) -> Bounds | None:
        return None if a is None or b is None else (minimum(a[0], b[0]), maximum(a[1], b[1]))

    def _binary(self, e: BinaryOp) -> Bounds | None:
        a, b = self.of(e.a), self.of(e.b)
        if e.op == "%":
            return self._remainder(e, a, b)
        if a is None or b is None:
            return None
        if e.op == "+":
            return a[0] + b[0], a[1] + b[1]
        if e.op == "-":
            return a[0] - b[1], a[1] - b[0]
        if e.op == "*":
            return self._product(a, b)
        if e.op == "//" and self._fixed(b) and self.analyzer.prove(b[0] > 0):
            return a[0] // b[0], a[1] // b[0]
        if e.op in ("min", "max"):
            choose = minimum if e.op == "min" else maximum
            return choose(a[0], b[0]), choose(a[1], b[1])
        return None

    def _fixed(self, a: Bounds) -> bool:
        return key(a[0]) == key(a[1])

    def _product(self, a: Bounds, b: Bounds) -> Bounds | None:
        for x, y in ((a, b), (b, a)):
            if self._fixed(y) and self.analyzer.prove(y[0] >= 0):
                return x[0] * y[0], x[1] * y[0]
            if self._fixed(y) and self.analyzer.prove(y[0] <= 0):
                return x[1] * y[0], x[0] * y[0]
        return None

    def _remainder(self, e: BinaryOp, a: Bounds | None, b: Bounds | None) -> Bounds | None:
        if b is None or not self._fixed(b) or not self.analyzer.prove(b[0] > 0):
            return None
        divisor = b[0]
        if a is not None and equal(a[0] // divisor, a[1] // divisor, self.analyzer):
            return a[0] % divisor, a[1] % divisor
        return const(0, e.dtype), divisor - 1


def clip(bounds: Bounds, last: PrimExpr, analyzer: Analyzer) -> Bounds:
    """``bounds`` intersected with ``[0, last]``, as far as can be proved."""
    low, high = bounds
    if analyzer.prove(low <= 0) and not analyzer.prove(low >= 0):
        low = const(0, low.dtype)
    if analyzer.prove(high >= last) and not analyzer.prove(high <= last):
        high = analyzer.simplify(last)
    return low, high


# -- guards -------------------------------------------------------------------------------------------------------


@dataclass
class Points:
    """The iteration domain of a guarded nest as a box: its variables with extents, and the loops in terms of them."""

    extents: dict[Var, PrimExpr]
    mapping: dict[Var, PrimExpr]

    def count(self, analyzer: Analyzer) -> PrimExpr:
        total: PrimExpr = IntImm(1)
        for extent in self.extents.values():
            total = total * extent
        return analyzer.simplify(total)


def points(loops: Extents, guards: Sequence[PrimExpr], analyzer: Analyzer) -> Points | None:
    """The iteration domain of ``loops`` under guards ``e < n`` of inexact splits: ``e`` becomes a variable of extent n.

    None when a guard has another form. New variables are bound in ``analyzer``.
    """
    result = Points(dict(loops), {})
    pending = list(guards)
    while pending:
        done = next((g for g in pending if _undo(g, result, analyzer)), None)
        if done is None:
            return None
        pending = [analyzer.simplify(substitute(g, result.mapping)) for g in pending if g is not done]
        pending = [g for g in pending if not (isinstance(g, IntImm) and g.value)]
    return result


def _undo(guard: PrimExpr, found: Points, analyzer: Analyzer) -> bool:
    if not (isinstance(guard, BinaryOp) and guard.op == "<" and not mentions(guard.b, {id(v) for v in found.extents})):
        return False
    form = analyzer.linear(guard.a)
    reach: PrimExpr = IntImm(1)
    variables: list[Var] = []
    for atom, coefficient in sorted(form.terms.values(), key=lambda t: t[1]):
        if not (isinstance(atom, Var) and atom in found.extents and equal(reach, IntImm(coefficient), analyzer)):
            return False
        variables.append(atom)
        reach = reach * found.extents[atom]
    if form.const or not variables or not analyzer.prove(reach >= guard.b):
        return False
    whole = Var("_".join(v.name for v in variables))
    analyzer.bind(whole, guard.b)
    rest = form.without(key(variables[0]))
    mapping = {variables[0]: whole - analyzer.build(rest, variables[0].dtype)}
    found.mapping = {v: substitute(e, mapping) for v, e in found.mapping.items()} | mapping
    for v in variables:
        del found.extents[v]
    found.extents[whole] = guard.b
    return True


# -- equal values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equation:
    """``low <= a(x) - b(x') <= high`` for two assignments x and x' of the varying variables; None: unbounded."""

    a: PrimExpr
    b: PrimExpr
    low: int | None = 0
    high: int | None = 0


def equal_variables(
    equations: Sequence[Equation], varying: Sequence[Var], analyzer: Analyzer, wanted: Var | None = None
) -> set[int] | None:
    """Identities of the varying variables that are equal in all pairs of assignments that satisfy the equations.

    Other variables have the same value in both assignments. None when no pair satisfies the equations. Conservative:
    variables for which equality cannot be proved are left out. wanted: once it is known to be equal, no more is proved.
    """
    return _Solver(equations, varying, analyzer).solve(wanted)


@dataclass
class _Term:
    atom: PrimExpr
    coefficient: int
    spread: int | None


class _Solver:
    def __init__(self, equations: Sequence[Equation], varying: Sequence[Var], analyzer: Analyzer):
        self.analyzer = analyzer
        self.varying = {id(v): v for v in varying}
        self.open = {k for k, v in self.varying.items() if self._spread(v) != 0}
        self.known: dict[Key, PrimExpr] = {}
        self.equations = equations
        self.forms = [form for e in equations for form in self._forms(e)]
        self.impossible = False

    def solve(self, wanted: Var | None) -> set[int] | None:
        progress = True
        while progress and not self.impossible:
            before = (len(self.open), len(self.known))
            for a, b, equation in self.forms:
                self._equation(a, b, equation)
            self._join_divisions()
            if wanted is not None and id(wanted) in self.varying and id(wanted) not in self.open:
                return set(self.varying) - self.open
            progress = bool(self.open) and (len(self.open), len(self.known)) != before
        if self.impossible or any(self._is_disproved(e) for e in self.equations):
            return None
        return set(self.varying) - self.open

    def _forms(self, e: Equation) -> Iterator[tuple[Linear, Linear, Equation]]:
        """Linear forms of both sides, first with remainders rewritten as quotients, then with remainders as atoms."""
        a = self.analyzer.linear(e.a)
        b = a if e.b is e.a else self.analyzer.linear(e.b)
        yield a, b, e
        if any(isinstance(atom, BinaryOp) for form in (a, b) for atom, _ in form.terms.values()):
            yield self.analyzer.with_remainders(a), self.analyzer.with_remainders(b), e

    def _is_open(self, k: Key, atom: PrimExpr) -> bool:
        return k not in self.known and (mentions(atom, self.open) or _loads(atom))

    def _equation(self, a: Linear, b: Linear, equation: Equation) -> None:
        fixed = Linear(a.const - b.const)
        paired: list[tuple[Key, _Term]] = []
        loose: list[tuple[PrimExpr, int]] = []
        for k in {**a.terms, **b.terms}:
            atom = (a.terms.get(k) or b.terms[k])[0]
            ca, cb = (form.terms[k][1] if k in form.terms else 0 for form in (a, b))
            if not self._is_open(k, atom):
                fixed = fixed.add(Linear(0, {k: (atom, ca - cb)} if ca != cb else {}))
            elif ca == cb and not _loads(atom):
                paired.append((k, _Term(atom, ca, self._spread(atom))))
            else:
                loose += [(atom, ca), (atom, -cb)]
        low, high = self._residual(fixed, loose, equation)
        self._determine(paired, low, high)

    def _residual(
        self, fixed: Linear, loose: Sequence[tuple[PrimExpr, int]], equation: Equation
    ) -> tuple[int | None, int | None]:
        """Bounds on the sum of the paired terms' differences that the equation implies."""
        low, high = self.analyzer.bounds(fixed)
        for atom, coefficient in loose:
            if coefficient:
                lo, hi = self.analyzer.bounds(Linear(0, {key(atom): (atom, coefficient)}))
                low = None if low is None or lo is None else low + lo
                high = None if high is None or hi is None else high + hi
        sum_low = None if equation.low is None or high is None else equation.low - high
        sum_high = None if equation.high is None or low is None else equation.high - low
        return sum_low, sum_high

    def _determine(self, paired: list[tuple[Key, _Term]], low: int | None, high: int | None) -> None:
        """Find equal terms given ``low <= sum(c * (t - t')) <= high``.

        t equals t' for the largest c when the other terms cannot offset a difference of 1.
        """
        paired = sorted(paired, key=lambda p: (abs(p[1].coefficient), p[1].spread is None, p[1].spread))
        while paired:
            k, top = paired[-1]
            rest = self._reach([t for _, t in paired[:-1]])
            step = abs(top.coefficient)
            if rest is None or low is None or high is None or low - rest <= -step or high + rest >= step:
                break
            self.known[k] = top.atom
            self.open.discard(id(top.atom))
            paired.pop()
        total = self._reach([t for _, t in paired])
        if total is not None and ((low is not None and low > total) or (high is not None and high < -total)):
            self.impossible = True

    def _reach(self, terms: Sequence[_Term]) -> int | None:
        total = 0
        for t in terms:
            if t.spread is None:
                return None
            total += abs(t.coefficient) * t.spread
        return total

    def _spread(self, atom: PrimExpr) -> int | None:
        low, high = self.analyzer.bounds(Linear(0, {key(atom): (atom, 1)}))
        return None if low is None or high is None else high - low

    def _join_divisions(self) -> None:
        """Derive that ``e`` is equal in both assignments when ``e // d`` and ``e % d`` are."""
        for atom in list(self.known.values()):
            if isinstance(atom, BinaryOp) and atom.op == "//" and key(BinaryOp("%", atom.a, atom.b)) in self.known:
                form = self.analyzer.linear(atom.a)
                self._equation(form, form, Equation(atom.a, atom.a))

    def _is_disproved(self, equation: Equation) -> bool:
        """Whether symbolic bounds prove that no two assignments satisfy the equation."""
        if equation.a is equation.b or (equation.low is None and equation.high is None):
            return False
        renamed: dict[Var, PrimExpr] = {}
        for var in (self.varying[identity] for identity in self.open):
            renamed[var] = second(var)
            if id(var) in self.analyzer.extents:
                self.analyzer.bind(second(var), self.analyzer.extents[id(var)])
        difference = self.analyzer.linear(equation.a).add(self.analyzer.linear(substitute(equation.b, renamed)), -1)
        above = equation.high is not None and self._nonnegative(difference.add(Linear(-equation.high - 1)))
        negated = Linear().add(difference, -1)
        return above or (equation.low is not None and self._nonnegative(negated.add(Linear(equation.low - 1))))

    def _nonnegative(self, form: Linear) -> bool:
        return self.analyzer.nonnegative(form) or self.analyzer.nonnegative(_coarsened(self._lower_bound(form)))

    def _lower_bound(self, form: Linear) -> Linear:
        """A lower bound of a form: loop variables with a negative coefficient are set to their maximum."""
        extents = self.analyzer.extents
        for k, (atom, coefficient) in form.terms.items():
            if coefficient < 0 and isinstance(atom, Var) and id(atom) in extents:
                last = self.analyzer.linear(extents[id(atom)]).add(Linear(-1))
                form = form.without(k).add(last, coefficient)
        return form


def _coarsened(form: Linear) -> Linear:
    """A lower bound of a form by ``e // 4 >= 3 * (e // 12)``, applied when the form subtracts the coarser quotient."""
    quotients = [(k, a, c) for k, (a, c) in form.terms.items() if isinstance(a, BinaryOp) and a.op == "//"]
    for k, fine, coefficient in quotients:
        for k2, coarse, subtracted in quotients:
            if coefficient > 0 > subtracted and isinstance(fine.b, IntImm) and isinstance(coarse.b, IntImm):
                times, rest = divmod(coarse.b.value, fine.b.value)
                if times > 1 and not rest and key(fine.a) == key(coarse.a):
                    return form.without(k).add(Linear(0, {k2: (coarse, coefficient * times)}))
    return form


def _loads(atom: PrimExpr) -> bool:
    return bool(nodes_of(atom, BufferLoad))
