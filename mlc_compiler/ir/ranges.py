"""Ranges of variables, and constant bounds of expressions derived from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from . import dtype as dt
from . import intervals as iv
from .expr import BinaryOp, Cast, ExprLike, IntImm, PrimExpr, Select, Var, as_expr
from .intervals import UNKNOWN, Interval
from .linear import Key, Linear, factors
from .visitor import nodes_of

_OPEN_ALREADY = nullcontext()
_NO_LOOPS: frozenset[int] = frozenset()


@dataclass
class Facts:
    """Cached results about expressions, valid under the assumption that certain loops are not empty.

    lower_bounds: lower bounds of sizes, by ``id``. forms: linear forms of expressions, by ``id``. intervals: bounds of
    atoms. proofs: whether forms are nonnegative. ranks: ranks of the innermost loop variables in atoms, by ``id``.
    remainders: forms with remainders as atoms, by ``id`` of the form. selects: simplified ``Select`` nodes, by ``id``
    of the node before or after. Each entry also holds what its key is made of, so that the ``id`` stays valid.
    """

    lower_bounds: Mapping[int, int]
    forms: dict[int, tuple[PrimExpr, Linear]] = field(default_factory=dict)
    intervals: dict[Key, tuple[PrimExpr, Interval]] = field(default_factory=dict)
    proofs: dict[Key, tuple[Linear, bool]] = field(default_factory=dict)
    ranks: dict[int, tuple[PrimExpr, int]] = field(default_factory=dict)
    remainders: dict[int, tuple[Linear, Linear]] = field(default_factory=dict)
    selects: dict[int, tuple[PrimExpr, PrimExpr]] = field(default_factory=dict)


class _Query:
    """Context in which certain loops are assumed not to be empty, see ``Ranges._query``."""

    __slots__ = ("nonempty", "ranges")

    def __init__(self, ranges: Ranges, nonempty: frozenset[int]):
        self.ranges = ranges
        self.nonempty = nonempty

    def __enter__(self) -> None:
        self.ranges.assume(self.nonempty)

    def __exit__(self, *_: object) -> None:
        self.ranges.assume(None)


class Ranges(ABC):
    """Ranges of variables: ``bind`` declares ``0 <= var < extent``, ``let`` declares ``var == value``.

    Any other variable is a size: at least ``least``. An expression that uses a bound variable is evaluated inside
    its loop, where the extent is at least 1. Index arithmetic, on variables and numbers, is assumed not to overflow;
    arithmetic on data may wrap around, and is simplified only where its bounds exclude that.

    Results are cached, for each set of loops assumed not to be empty, until a range that they depend on is declared.
    """

    def __init__(self, ranges: Mapping[Var, ExprLike] | None = None, least: int = 0):
        self.extents: dict[int, PrimExpr] = {}
        self.values: dict[int, tuple[Interval, bool]] = {}
        self.ranks: dict[int, int] = {}
        self.keep: list[Var] = []
        self.least = least
        self._met: set[int] = set()
        self._symbolic: set[int] = set()
        self._facts: dict[frozenset[int], Facts] = {}
        self._nonempty: frozenset[int] | None = None
        self.known = self._known()
        for var, extent in (ranges or {}).items():
            self.bind(var, extent)

    def bind(self, var: Var, extent: ExprLike) -> None:
        """Declare ``0 <= var < extent``."""
        if self.extents.get(id(var)) is not extent:
            self.extents[id(var)] = as_expr(extent)
            if not isinstance(self.extents[id(var)], IntImm):
                self._symbolic.add(id(var))
            self._remember(var)

    def let(self, var: Var, value: PrimExpr) -> None:
        """Declare ``var == value``; nothing is known about floats."""
        if dt.is_float(value.dtype):
            return
        interval = UNKNOWN
        if dt.is_int(value.dtype):
            interval = iv.intersection(self.bounds(self.linear(value)), iv.of_dtype(value.dtype))
        self.values[id(var)] = interval, self.is_index(value)
        self._remember(var)

    def _remember(self, var: Var) -> None:
        """Keep the variable alive, since it is looked up by ``id``, and assign its rank (inner loops rank higher).

        Cached results are dropped if the variable was looked up before.
        """
        self.keep.append(var)
        self.ranks[id(var)] = len(self.keep)
        if id(var) in self._met:
            self._facts.clear()
            self.known = self._known()

    @abstractmethod
    def linear(self, expr: PrimExpr) -> Linear:
        """The linear form of an integer expression."""

    @abstractmethod
    def nonnegative(self, form: Linear) -> bool:
        """Whether ``form >= 0`` can be proved."""

    def _query(self, *exprs: PrimExpr) -> AbstractContextManager[None]:
        """Context of a query about expressions: inside it, the loops of their variables are assumed not to be empty."""
        return _OPEN_ALREADY if self._is_open() else _Query(self, self._loops_of(exprs))

    def assume(self, nonempty: frozenset[int] | None) -> None:
        """Use the results that hold if these loops are not empty; None ends the query."""
        self._nonempty = nonempty
        self.known = self._facts.get(nonempty or _NO_LOOPS) or self._known()

    def _is_open(self) -> bool:
        """Whether a query is in progress, or none is needed because all loops have constant extents."""
        return self._nonempty is not None or not self._symbolic

    def _loops_of(self, exprs: Iterable[PrimExpr]) -> frozenset[int]:
        """The ``id`` of each variable in the expressions whose loop has a symbolic extent."""
        return frozenset(self._symbolic.intersection(map(id, nodes_of(exprs, Var))))

    def _known(self) -> Facts:
        """The cache for the assumptions of the current query; outside of a query nothing is assumed."""
        nonempty = self._nonempty or _NO_LOOPS
        if nonempty not in self._facts:
            self._facts[nonempty] = Facts(self._size_bounds(nonempty))
        return self._facts[nonempty]

    # -- index arithmetic ---------------------------------------------------------------------------------------

    def is_index(self, expr: PrimExpr) -> bool:
        """Whether an expression is arithmetic on variables and numbers, not on data."""
        if isinstance(expr, Var):
            self._met.add(id(expr))
            return self.values[id(expr)][1] if id(expr) in self.values else dt.is_int(expr.dtype)
        if isinstance(expr, BinaryOp):
            return self.is_index(expr.a) and self.is_index(expr.b)
        if isinstance(expr, Cast):
            return dt.is_int(expr.dtype) and dt.is_int(expr.value.dtype) and self.is_index(expr.value)
        if isinstance(expr, Select):
            return all(map(self.is_index, (expr.condition, expr.true_value, expr.false_value)))
        return isinstance(expr, IntImm)

    def is_exact(self, form: Linear, dtype: str) -> bool:
        """Whether the form's value is representable in ``dtype``: the arithmetic did not wrap around."""
        if form.const == 0 and len(form.terms) == 1 and next(iter(form.terms.values()))[1] == 1:
            return True
        magnitude = abs(form.const)
        for atom, coefficient in form.terms.values():
            if self.is_index(atom):
                continue
            low, high = self._atom_bounds(atom)
            if low is None or high is None:
                return False
            magnitude += abs(coefficient) * max(abs(low), abs(high))
        return magnitude < 1 << (dt.bits(dtype) - 1)

    # -- bounds -------------------------------------------------------------------------------------------------

    def bounds(self, form: Linear) -> Interval:
        """Constant bounds of a linear form, both inclusive; None for an unknown bound."""
        if self._is_open():
            return self._bounds(form)
        with self._query(*(atom for atom, _ in form.terms.values())):
            return self._bounds(form)

    def _bounds(self, form: Linear) -> Interval:
        intervals = self.known.intervals
        result: Interval = (form.const, form.const)
        for k, (atom, coefficient) in form.terms.items():
            if k not in intervals:
                intervals[k] = atom, self._atom_bounds(atom)
            result = iv.add(result, iv.scale(intervals[k][1], coefficient))
        return result

    def bounds_of(self, expr: PrimExpr) -> Interval:
        return self.bounds(self.linear(expr))

    def _atom_bounds(self, atom: PrimExpr) -> Interval:
        if isinstance(atom, Var):
            return self._var_bounds(atom)
        if isinstance(atom, BinaryOp):
            return iv.intersection(self._binary_bounds(atom), self._limits(atom))
        if isinstance(atom, Select):
            return iv.union(self.bounds_of(atom.true_value), self.bounds_of(atom.false_value))
        if isinstance(atom, Cast) and dt.is_int(atom.dtype):
            return self._cast_bounds(atom)
        return iv.of_dtype(atom.dtype)

    def _limits(self, atom: PrimExpr) -> Interval:
        """The dtype's range for data; index arithmetic is not limited by it."""
        return UNKNOWN if self.is_index(atom) else iv.of_dtype(atom.dtype)

    def _var_bounds(self, var: Var) -> Interval:
        self._met.add(id(var))
        if id(var) in self.values:
            return self.values[id(var)][0]
        if id(var) in self.extents:
            high = self.bounds_of(self.extents[id(var)])[1]
            return 0, None if high is None else high - 1
        if var.dtype != "int64":
            return UNKNOWN if dt.is_signed(var.dtype) else (0, None)
        return max(self.least, self.known.lower_bounds.get(id(var), self.least)), None

    def _cast_bounds(self, atom: Cast) -> Interval:
        whole = iv.of_dtype(atom.dtype)
        if not dt.is_int(atom.value.dtype):
            return (0, 1) if atom.value.dtype == "bool" else whole
        inner = iv.intersection(self.bounds_of(atom.value), self._limits(atom.value))
        low, high = inner
        fits = dt.bits(atom.dtype) > 32 or whole == UNKNOWN
        if low is not None and high is not None and whole[0] is not None and whole[1] is not None:
            fits = whole[0] <= low and high <= whole[1]
        signs = dt.is_signed(atom.dtype) or (low is not None and low >= 0)
        return inner if fits and signs else whole

    def _binary_bounds(self, atom: BinaryOp) -> Interval:
        if atom.op == "*":
            result: Interval = (1, 1)
            for factor in factors(atom):
                result = iv.multiply(result, self.bounds_of(factor))
            return result
        if not dt.is_int(atom.dtype):
            return 0, 1
        a, b = self.bounds_of(atom.a), self.bounds_of(atom.b)
        if atom.op in ("//", "%"):
            return iv.quotient(a, b) if atom.op == "//" else iv.remainder(a, b)
        if atom.op == "&" and b[0] is not None and b[0] >= 0:
            return 0, b[1]
        if atom.op == "min":
            return iv.minimum(a, b)
        return iv.maximum(a, b) if atom.op == "max" else UNKNOWN

    # -- lower bounds of sizes ----------------------------------------------------------------------------------

    def _size_bounds(self, nonempty: Iterable[int]) -> dict[int, int]:
        """Lower bounds of sizes, by ``id``, that hold because loops (by their variables) are not empty."""
        bounds: dict[int, int] = {}
        for loop in nonempty:
            self._add_lower_bound(bounds, self.extents[loop], 1)
        return bounds

    def _add_lower_bound(self, bounds: dict[int, int], expr: PrimExpr, low: int) -> None:
        """Add the lower bounds of variables that ``expr >= low`` implies."""
        if isinstance(expr, Var):
            self._met.add(id(expr))
            if id(expr) in self.extents:
                self._add_lower_bound(bounds, self.extents[id(expr)], low + 1)
            bounds[id(expr)] = max(low, bounds.get(id(expr), self.least))
        elif isinstance(expr, BinaryOp) and expr.op == "min":
            self._add_lower_bound(bounds, expr.a, low)
            self._add_lower_bound(bounds, expr.b, low)
        elif isinstance(expr, BinaryOp) and isinstance(expr.b, IntImm):
            self._add_bound_of_operand(bounds, expr.op, expr.a, expr.b.value, low)
        elif isinstance(expr, BinaryOp) and expr.op == "*" and low >= 1:
            if all(self._is_size(f) for f in factors(expr)):
                for factor in factors(expr):
                    self._add_lower_bound(bounds, factor, 1)

    def _add_bound_of_operand(self, bounds: dict[int, int], op: str, a: PrimExpr, c: int, low: int) -> None:
        """Add the lower bound of ``a`` that ``a op c >= low`` implies."""
        if op == "+":
            self._add_lower_bound(bounds, a, low - c)
        elif op == "-":
            self._add_lower_bound(bounds, a, low + c)
        elif op == "*" and c > 0:
            self._add_lower_bound(bounds, a, -(-low // c))
        elif op == "//" and c > 0:
            self._add_lower_bound(bounds, a, low * c)

    def _is_size(self, expr: PrimExpr) -> bool:
        """Whether an expression is built from sizes and constants that are not negative."""
        if isinstance(expr, BinaryOp) and expr.op in ("//", "*", "+", "min", "max"):
            return self._is_size(expr.a) and self._is_size(expr.b)
        if isinstance(expr, IntImm):
            return expr.value >= 0
        if not isinstance(expr, Var):
            return False
        self._met.add(id(expr))
        return id(expr) not in self.values and self.least >= 0 and expr.dtype == "int64"
