"""The least and the greatest value of an index in the loops around it, where these are certain numbers."""

from __future__ import annotations

from collections import Counter

from ..ir import dtype as dt
from ..ir import intervals as iv
from ..ir.expr import BinaryOp, Cast, IntImm, PrimExpr, Var
from ..ir.intervals import UNKNOWN, Interval
from ..ir.linear import Key, key
from ..ir.simplify import Analyzer
from ..ir.visitor import substitute, walk
from ..tir.nodes import BufferLoad
from ..tir.regions import span

_ONE: None = None  # the variable of the constant term
_ARITHMETIC = {
    "+": iv.add,
    "-": lambda a, b: iv.add(a, iv.scale(b, -1)),
    "*": iv.multiply,
    "//": iv.quotient,
    "%": iv.remainder,
    "min": iv.least,
    "max": iv.greatest,
}


class IndexBounds:
    """Loops and the values of variables at one place of a function; ``ends`` bounds what is computed from them.

    Sums of loop variables with constant extents, the common case, are bounded by interval arithmetic; what has
    symbolic sizes in it by :class:`Analyzer`. Of what depends on data nothing is certain. ``widest`` answers most
    questions before that.
    """

    def __init__(self) -> None:
        self.extents: dict[Var, PrimExpr] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.data: set[Var] = set()
        self.intervals: dict[Var, Interval] = {}
        self.analyzer = Analyzer()
        self.answers: dict[Key, Interval] = {}
        """What ``_symbolic`` found, until a variable is bound anew."""

    def enter(self, var: Var, extent: PrimExpr) -> PrimExpr:
        """A loop begins: ``0 <= var < extent``. Gives the extent in terms of the loops around."""
        if var in self.intervals:
            self.answers.clear()
        self.extents[var] = extent = substitute(extent, self.values)
        self.analyzer.bind(var, extent)
        most = self.widest(extent)[1]
        self.intervals[var] = 0, None if most is None else most - 1
        return extent

    def leave(self, var: Var) -> None:
        """The loop ends."""
        del self.extents[var]

    def let(self, var: Var, value: PrimExpr) -> None:
        """``var`` stands for ``value`` from here on; for a number that is unknown where data decide about it."""
        self.intervals[var] = self.widest(value)
        value = substitute(value, self.values)
        self.values.pop(var, None)
        self.data.discard(var)
        if _terms_of(value) is None and self._depends_on_data(value):
            self.data.add(var)
        else:
            self.values[var] = value

    def widest(self, expr: PrimExpr) -> Interval:
        """An interval that holds all values, by interval arithmetic alone: cheap, and possibly too wide."""
        if isinstance(expr, IntImm):
            return expr.value, expr.value
        if isinstance(expr, Var):
            return self.intervals.get(expr, UNKNOWN)
        if isinstance(expr, BinaryOp) and expr.op in _ARITHMETIC:
            return _ARITHMETIC[expr.op](self.widest(expr.a), self.widest(expr.b))
        return self.widest(expr.value) if isinstance(expr, Cast) and _widens(expr) else UNKNOWN

    def ends(self, expr: PrimExpr) -> Interval:
        """Both ends, inclusive, None where unknown. Loops count as not empty: the expression is evaluated in them."""
        whole = substitute(expr, self.values)
        terms = _terms_of(whole)
        if terms is None:
            return UNKNOWN if self._depends_on_data(whole) else self._symbolic(whole)
        if any(self._is_size(var) for var in terms):
            return self._symbolic(whole)
        result: Interval = (0, 0)
        for var, coefficient in terms.items():
            result = iv.add(result, iv.scale(self._range(var), coefficient))
        return result

    def _is_size(self, var: Var | None) -> bool:
        """Whether sizes bound a variable, which may cancel others."""
        if var is None or var in self.data:
            return False
        extent = self.extents.get(var)
        return extent is None or not (isinstance(extent, IntImm) or self._depends_on_data(extent))

    def _range(self, var: Var | None) -> Interval:
        if var is _ONE:
            return 1, 1
        if var not in self.extents:
            return UNKNOWN
        extent = self.extents[var]
        return 0, extent.value - 1 if isinstance(extent, IntImm) else None

    def _symbolic(self, expr: PrimExpr) -> Interval:
        identity = key(expr)
        if identity not in self.answers:
            self.answers[identity] = self._ends_of_span(expr)
        return self.answers[identity]

    def _ends_of_span(self, expr: PrimExpr) -> Interval:
        found = span(expr, self.extents, self.analyzer)
        return UNKNOWN if found is None else (self._number(found.min), self._number(found.min + found.extent - 1))

    def _number(self, expr: PrimExpr) -> int | None:
        simple = self.analyzer.simplify(expr)
        return simple.value if isinstance(simple, IntImm) else None

    def _depends_on_data(self, expr: PrimExpr) -> bool:
        return any(isinstance(n, BufferLoad) or (isinstance(n, Var) and n in self.data) for n in walk(expr))


def _terms_of(expr: PrimExpr) -> Counter[Var | None] | None:
    """The coefficients of the variables in a sum of them, and of ``_ONE``; None for what is no such sum."""
    terms: Counter[Var | None] = Counter()
    stack = [(expr, 1)]
    while stack:
        e, scale = stack.pop()
        if isinstance(e, IntImm):
            terms[_ONE] += scale * e.value
        elif isinstance(e, Var):
            terms[e] += scale
        elif isinstance(e, BinaryOp) and e.op in ("+", "-"):
            stack += [(e.a, scale), (e.b, scale if e.op == "+" else -scale)]
        elif isinstance(e, BinaryOp) and e.op == "*" and isinstance(e.b, IntImm):
            stack.append((e.a, scale * e.b.value))
        elif isinstance(e, Cast) and _widens(e):
            stack.append((e.value, scale))
        else:
            return None
    return Counter({var: n for var, n in terms.items() if n})


def _widens(e: Cast) -> bool:
    integers = dt.is_int(e.dtype) and dt.is_int(e.value.dtype)
    return integers and dt.is_signed(e.dtype) and dt.bits(e.dtype) > dt.bits(e.value.dtype)
