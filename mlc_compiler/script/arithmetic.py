"""Operators on script values. Operations on two Python numbers are evaluated; others build a node without folding."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import (
    INDEX_DTYPE,
    LOGICAL,
    BinaryOp,
    Cast,
    FloatImm,
    IntImm,
    Not,
    PrimExpr,
    cast,
    const,
    require_defined,
)
from ..relax.nodes import Expr
from ..tir.nodes import Buffer, BufferRegion

Number = bool | int | float

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "min": min,
    "max": max,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}


def is_python(value: Any) -> bool:
    """Whether a value is a Python value, known while parsing, and not an IR node."""
    return not isinstance(value, PrimExpr | Buffer | BufferRegion | Expr)


def to_expr(value: Any, like: str | None = None) -> PrimExpr:
    """Convert a scalar to an expression. A Python number takes the dtype ``like``, else int64, float32 or bool.

    A float takes ``like`` only if that is a floating dtype. Raises TypeError for other values.
    """
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, bool):
        return IntImm(int(value), "bool")
    if isinstance(value, int) or hasattr(value, "__index__"):
        return const(int(value), like if like not in (None, "bool", "handle") else INDEX_DTYPE)
    if isinstance(value, float) or hasattr(value, "__float__"):
        return FloatImm(float(value), like if like and dt.is_float(like) else "float32")
    raise TypeError(f"expected a scalar expression or a number, got {_kind(value)}")


def _kind(value: Any) -> str:
    if isinstance(value, Buffer):
        return f"the buffer {value.name}; index it, as in {value.name}[...]"
    return f"{type(value).__name__} {value!r}" if isinstance(value, str) else f"a {type(value).__name__}"


def common_type(a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
    """Convert operands to a common dtype: Python numbers take the other's dtype, two expressions are promoted."""
    like_a = a.dtype if isinstance(a, PrimExpr) else None
    like_b = b.dtype if isinstance(b, PrimExpr) else None
    x, y = to_expr(a, like_b), to_expr(b, like_a)
    if x.dtype == y.dtype:
        return x, y
    common = dt.promote(x.dtype, y.dtype)
    return cast(common, x), cast(common, y)


def binary(op: str, a: Any, b: Any) -> Any:
    """``a op b``. Raises TypeError or ValueError for operands that ``op`` does not support."""
    if is_python(a) and is_python(b):
        return _PYTHON[op](a, b)
    x, y = common_type(a, b)
    if op in LOGICAL and x.dtype != "bool":
        raise TypeError(f"{op!r} takes truth values; got {x.dtype}")
    if op == "/" and not dt.is_float(x.dtype):
        raise TypeError(f"'/' of {x.dtype} values; use // (floor) or T.Div (truncating)")
    require_defined(op, x.dtype)
    return BinaryOp(op, x, y)


def truncating_division(a: Any, b: Any) -> PrimExpr:
    """``T.Div``: the quotient of integers rounded towards zero; of floats, ``/``."""
    return BinaryOp("/", *common_type(a, b))


def negate(value: Any) -> Any:
    """``-value``: a Python number for a Python number; an expression is subtracted from zero."""
    if is_python(value):
        return -value
    expr = to_expr(value)
    return BinaryOp("-", const(0, expr.dtype), expr)


def logical_not(value: Any) -> Any:
    if is_python(value):
        return not value
    expr = to_expr(value)
    if expr.dtype != "bool":
        raise TypeError(f"'not' takes a truth value; got {expr.dtype}")
    return Not(expr)


def convert(dtype: str, value: Any) -> PrimExpr:
    """``T.float32(x)``, ``T.Cast("float32", x)``: convert a Python number to an immediate, an expression to a cast.

    An expression that already has the dtype is returned unchanged.
    """
    if not isinstance(dtype, str) or not dt.is_known(dtype):
        raise TypeError(f'expected a dtype such as "float32", got {dtype!r}')
    if isinstance(value, str):
        return FloatImm(float(value), dtype)
    if not isinstance(value, PrimExpr):
        return const(to_expr(value, dtype).value, dtype)  # type: ignore[attr-defined]
    return value if value.dtype == dtype else Cast(dtype, value)
