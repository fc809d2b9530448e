"""Scalar expressions: indices, loop extents, symbolic sizes and values stored to buffers.

Nodes are immutable. ``a == b`` builds a comparison node; identity is ``a is b`` and structural equality is
:func:`mlc_compiler.ir.structural.structural_equal`. Building folds constants; deeper rewriting is ``ir/simplify.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from . import dtype as dt
from .node import node

INDEX_DTYPE = "int64"

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGICAL = ("and", "or")
BITWISE = ("<<", ">>", "&", "|", "^")
BINARY_OPS = ARITHMETIC + COMPARISONS + LOGICAL + BITWISE
BOOL_RESULT = frozenset(COMPARISONS + LOGICAL)
"""Operators whose result is a bool."""
NUMERIC_ONLY = ("+", "-", "*", "/", "//", "%", "<<", ">>")
"""Operators that are not defined for bool operands; ``min``, ``max``, ``&``, ``|`` and ``^`` of bools are bools."""


class PrimExpr:
    """Base of all scalar expressions; ``dtype`` names the type of the value."""

    __slots__ = ()
    dtype: str

    def __add__(self, other: Any) -> PrimExpr:
        return binary("+", self, other)

    def __radd__(self, other: Any) -> PrimExpr:
        return binary("+", other, self)

    def __sub__(self, other: Any) -> PrimExpr:
        return binary("-", self, other)

    def __rsub__(self, other: Any) -> PrimExpr:
        return binary("-", other, self)

    def __mul__(self, other: Any) -> PrimExpr:
        return binary("*", self, other)

    def __rmul__(self, other: Any) -> PrimExpr:
        return binary("*", other, self)

    def __truediv__(self, other: Any) -> PrimExpr:
        return binary("/", self, other)

    def __rtruediv__(self, other: Any) -> PrimExpr:
        return binary("/", other, self)

    def __floordiv__(self, other: Any) -> PrimExpr:
        return binary("//", self, other)

    def __rfloordiv__(self, other: Any) -> PrimExpr:
        return binary("//", other, self)

    def __mod__(self, other: Any) -> PrimExpr:
        return binary("%", self, other)

    def __rmod__(self, other: Any) -> PrimExpr:
        return binary("%", other, self)

    def __neg__(self) -> PrimExpr:
        return binary("-", const(0, self.dtype), self)

    def __lshift__(self, other: Any) -> PrimExpr:
        return binary("<<", self, other)

    def __rshift__(self, other: Any) -> PrimExpr:
        return binary(">>", self, other)

    def __and__(self, other: Any) -> PrimExpr:
        return binary("&", self, other)

    def __or__(self, other: Any) -> PrimExpr:
        return binary("|", self, other)

    def __xor__(self, other: Any) -> PrimExpr:
        return binary("^", self, other)

    def __lt__(self, other: Any) -> PrimExpr:
        return binary("<", self, other)

    def __le__(self, other: Any) -> PrimExpr:
        return binary("<=", self, other)

    def __gt__(self, other: Any) -> PrimExpr:
        return binary(">", self, other)

    def __ge__(self, other: Any) -> PrimExpr:
        return binary(">=", self, other)

    def __eq__(self, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return False
        return binary("==", self, other)

    def __ne__(self, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return True
        return binary("!=", self, other)

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise TypeError(f"a symbolic {type(self).__name__} has no truth value while the IR is built; use T.Select")

    def astype(self, dtype: str) -> PrimExpr:
        return cast(dtype, self)


@node
class Var(PrimExpr):
    """A named scalar: loop variable, symbolic size or scalar parameter. Variables are compared by identity."""

    name: str
    dtype: str = INDEX_DTYPE

    def __repr__(self) -> str:
        return self.name


@node
class IntImm(PrimExpr):
    value: int
    dtype: str = INDEX_DTYPE

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value


@node
class FloatImm(PrimExpr):
    value: float
    dtype: str = "float32"


@node
class StringImm(PrimExpr):
    value: str
    dtype: str = "handle"


@node
class Cast(PrimExpr):
    """The value converted to another dtype: floats round to nearest even, float to int truncates."""

    dtype: str
    value: PrimExpr


@node
class BinaryOp(PrimExpr):
    """``a op b``; both operands have the same dtype. ``//`` and ``%`` round towards minus infinity, as in Python."""

    op: str
    a: PrimExpr
    b: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        expr: PrimExpr = self
        while isinstance(expr, BinaryOp):  # a loop: long sums would exceed the recursion limit
            if expr.op in BOOL_RESULT:
                return "bool"
            expr = expr.a
        return expr.dtype

    def __bool__(self) -> bool:
        if self.op == "==":
            return self.a is self.b
        if self.op == "!=":
            return self.a is not self.b
        raise TypeError(f"a symbolic comparison ({self.op}) has no truth value while the IR is built")


@node
class Not(PrimExpr):
    value: PrimExpr
    dtype: str = "bool"


@node
class Select(PrimExpr):
    """``true_value`` where ``condition`` holds, else ``false_value``; both sides may be evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.true_value.dtype


@node
class Let(PrimExpr):
    """``body`` with ``var`` bound to ``value``, which is evaluated once."""

    defines: ClassVar[tuple[str, ...]] = ("var",)

    var: Var
    value: PrimExpr
    body: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.body.dtype


@node
class Call(PrimExpr):
    """A named scalar function: ``exp``, ``tanh``, ``fma``, ``if_then_else`` (lazy), a hardware intrinsic."""

    op: str
    args: tuple[PrimExpr, ...]
    dtype: str


ExprLike = PrimExpr | int | float | bool


def const(value: int | float | bool, dtype: str) -> PrimExpr:
    """Return an immediate of the given dtype."""
    if dt.is_float(dtype):
        return FloatImm(float(value), dtype)
    return IntImm(int(value), dtype)


def as_expr(value: ExprLike, like: str | None = None) -> PrimExpr:
    """Convert a Python number to an immediate: of dtype ``like`` (no float becomes an int), or bool, int64, float32."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, bool):
        return IntImm(int(value), "bool")
    if hasattr(value, "__index__"):
        return const(int(value), INDEX_DTYPE if like in (None, "bool") else like)
    if isinstance(value, float) or hasattr(value, "__float__"):
        return FloatImm(float(value), like if like and dt.is_float(like) else "float32")
    raise TypeError(f"expected a scalar expression or number, got {type(value).__name__}: {value!r}")


def cast(dtype: str, value: ExprLike) -> PrimExpr:
    """``value`` converted to ``dtype``. Immediates are folded, except to bool and to floats narrower than float32."""
    expr = as_expr(value)
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, IntImm) and dtype != "bool":
        return const(expr.value, dtype)
    if isinstance(expr, FloatImm) and dtype in ("float32", "float64"):
        return FloatImm(expr.value, dtype)
    return Cast(dtype, expr)


def _truth(value: bool) -> IntImm:
    return IntImm(int(value), "bool")


_FOLD_INT: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
_FOLD_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _fits(value: int, dtype: str) -> bool:
    width = dt.bits(dtype)
    if dt.is_signed(dtype):
        return -(1 << (width - 1)) <= value < 1 << (width - 1)
    return 0 <= value < 1 << width


def _fold(op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """The value of an operator one of whose operands is an integer, where it is known."""
    both_int = isinstance(a, IntImm) and isinstance(b, IntImm)
    if op in _FOLD_COMPARE:
        if both_int:
            return _truth(_FOLD_COMPARE[op](a.value, b.value))  # type: ignore[attr-defined]
        return None
    if op in LOGICAL:
        return _fold_logical(op, a, b)
    if both_int and op in _FOLD_INT and not (op in ("//", "%") and b.value == 0):  # type: ignore[attr-defined]
        value = _FOLD_INT[op](a.value, b.value)  # type: ignore[attr-defined]
        return IntImm(value, a.dtype) if _fits(value, a.dtype) else None
    if dt.is_int(a.dtype):
        return _fold_identity(op, a, b)
    return None


def _fold_logical(op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    for this, other in ((a, b), (b, a)):
        if isinstance(this, IntImm):
            absorbs = bool(this.value) == (op == "or")
            return _truth(op == "or") if absorbs else other
    return None


def _fold_identity(op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    a_value = a.value if isinstance(a, IntImm) else None
    b_value = b.value if isinstance(b, IntImm) else None
    if b_value == 0 and op in ("+", "-", "<<", ">>", "|", "^"):
        return a
    if a_value == 0 and op in ("+", "|", "^"):
        return b
    if 0 in (a_value, b_value) and op == "*":
        return IntImm(0, a.dtype)
    if b_value == 1 and op in ("*", "//"):
        return a
    if a_value == 1 and op == "*":
        return b
    if b_value == 1 and op == "%":
        return IntImm(0, a.dtype)
    return None


def require_defined(op: str, dtype: str) -> None:
    """Raise TypeError for an operator that is not defined for operands of this dtype."""
    if dtype == "bool" and op in NUMERIC_ONLY:
        raise TypeError(f"{op!r} takes numbers; got truth values: cast them, or use 'and', 'or', 'not'")


def binary(op: str, a: ExprLike, b: ExprLike) -> PrimExpr:
    """``a op b`` with operands promoted to a common dtype and constants folded.

    Raises TypeError for arithmetic on truth values.
    """
    if not isinstance(a, PrimExpr):
        a = as_expr(a, like=b.dtype if isinstance(b, PrimExpr) else None)
    elif not isinstance(b, PrimExpr):
        b = as_expr(b, like=a.dtype)
    if not isinstance(b, PrimExpr):
        b = as_expr(b)
    dtype, other = a.dtype, b.dtype
    if dtype != other:
        dtype = dt.promote(dtype, other)
        a, b = cast(dtype, a), cast(dtype, b)
    require_defined(op, dtype)
    folded = _fold(op, a, b) if isinstance(a, IntImm) or isinstance(b, IntImm) else None
    return BinaryOp(op, a, b) if folded is None else folded


def minimum(a: ExprLike, b: ExprLike) -> PrimExpr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> PrimExpr:
    return binary("max", a, b)


def logical_and(*terms: PrimExpr) -> PrimExpr:
    """The conjunction of ``terms``; true when there are none."""
    result: PrimExpr = _truth(True)
    for term in terms:
        result = binary("and", result, term)
    return result


def conjuncts(condition: PrimExpr) -> list[PrimExpr]:
    """The terms of a conjunction; an empty list for true."""
    if isinstance(condition, BinaryOp) and condition.op == "and":
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [] if isinstance(condition, IntImm) and condition.value else [condition]


def logical_or(*terms: PrimExpr) -> PrimExpr:
    """The disjunction of ``terms``; false when there are none."""
    result: PrimExpr = _truth(False)
    for term in terms:
        result = binary("or", result, term)
    return result


def product(factors: Iterable[PrimExpr], dtype: str = INDEX_DTYPE) -> PrimExpr:
    """The product of integers; 1 when there are none."""
    result: PrimExpr = IntImm(1, dtype)
    for factor in factors:
        result = result * factor
    return result


def without_casts(expr: PrimExpr) -> PrimExpr:
    """Strip all casts around an expression."""
    while isinstance(expr, Cast):
        expr = expr.value
    return expr


def ceildiv(a: ExprLike, b: ExprLike) -> PrimExpr:
    """``ceil(a / b)`` of integers, b positive."""
    return (as_expr(a) + (as_expr(b) - 1)) // as_expr(b)


def is_const(expr: Any, value: int | float | None = None) -> bool:
    """Whether ``expr`` is an immediate (equal to ``value`` when that is given)."""
    if not isinstance(expr, IntImm | FloatImm):
        return False
    return value is None or expr.value == value


def min_value(dtype: str) -> PrimExpr:
    """The minimum value of a dtype: minus infinity for floats that have it. The identity of ``max``."""
    if dt.is_float(dtype):
        return FloatImm(-dt.max_float(dtype), dtype)
    return IntImm(-(1 << (dt.bits(dtype) - 1)) if dt.is_signed(dtype) else 0, dtype)


def max_value(dtype: str) -> PrimExpr:
    """The maximum value of a dtype: infinity for floats that have it. The identity of ``min``."""
    if dt.is_float(dtype):
        return FloatImm(dt.max_float(dtype), dtype)
    if dtype == "bool":
        return _truth(True)
    return IntImm((1 << (dt.bits(dtype) - (1 if dt.is_signed(dtype) else 0))) - 1, dtype)
