"""Minimum and maximum of an index over its loops, where these are constants."""

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

_ONE: None = None  # the key of the constant term
_ARITHMETIC = {
    "+": iv.add,
    "-": lambda a, b: iv.add(a, iv.scale(b, -1)),
    "*": iv.multiply,
    "//": iv.quotient,
    "%": iv.remainder,
    "min": iv.minimum,
    "max": iv.maximum,
}


class IndexBounds:
    """Loops and values of variables at one point of a function, and bounds of expressions of them.

    ``exact`` returns bounds that are attained: by interval arithmetic for sums of loop variables with constant extents,
    the common case; by :class:`Analyzer` for expressions with symbolic sizes; none for values that depend on data.
    ``estimate`` is cheaper and sufficient for most accesses.
    """

    def __init__(self) -> None:
        self.extents: dict[Var, PrimExpr] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.data: set[Var] = set()
        self.intervals: dict[Var, Interval] = {}
        self.analyzer = Analyzer()
        self.answers: dict[Key, Interval] = {}
        """Cached results of ``_symbolic``, cleared when a variable is bound again."""

    def enter(self, var: Var, extent: PrimExpr) -> PrimExpr:
        """Enter a loop, ``0 <= var < extent``. Returns the extent in terms of the enclosing loops' variables."""
        if var in self.intervals:
            self.answers.clear()
        self.extents[var] = extent = substitute(extent, self.values)
        self.analyzer.bind(var, extent)
        maximum = self.estimate(extent)[1]
        self.intervals[var] = 0, None if maximum is None else maximum - 1
        return extent

    def leave(self, var: Var) -> None:
        """Leave a loop."""
        del self.extents[var]

    def let(self, var: Var, value: PrimExpr) -> None:
        """Bind ``var`` to ``value``; a value that depends on data counts as unknown."""
        self.intervals[var] = self.estimate(value)
        value = substitute(value, self.values)
        self.values.pop(var, None)
        self.data.discard(var)
        if _terms_of(value) is None and self._depends_on_data(value):
            self.data.add(var)
        else:
            self.values[var] = value

    def estimate(self, expr: PrimExpr) -> Interval:
        """Conservative bounds by interval arithmetic alone: cheap, and possibly too wide."""
        if isinstance(expr, IntImm):
            return expr.value, expr.value
        if isinstance(expr, Var):
            return self.intervals.get(expr, UNKNOWN)
        if isinstance(expr, BinaryOp) and expr.op in _ARITHMETIC:
            return _ARITHMETIC[expr.op](self.estimate(expr.a), self.estimate(expr.b))
        return self.estimate(expr.value) if isinstance(expr, Cast) and _widens(expr) else UNKNOWN

    def exact(self, expr: PrimExpr) -> Interval:
        """The exact minimum and maximum, None where unknown. Loops are assumed not to be empty."""
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
        """Whether a variable is a symbolic size or has a symbolic extent, so that terms may cancel."""
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
    """The coefficients of a sum of variables, the constant under ``_ONE``; None for any other expression."""
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
