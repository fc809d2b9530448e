"""Elementwise operators, exact on small integers."""

from __future__ import annotations

import numpy as np

from mlc_compiler.ir import dtype as dt
from mlc_compiler.relax import ops
from mlc_compiler.relax.nodes import constant
from tests.compiler.fuzz.values import Builder, Value, action, converted, exact_action, limited

DTYPES = (
    *("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2"),
    *("int32", "int64", "int8", "uint8", "bool", "float32"),
)
INSIDE = (*DTYPES, "int4", "uint4")
"""``DTYPES``: of parameters and results; ``INSIDE``: of intermediate values."""


@action
def unary(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.dtype == "bool":
        return b.emit(ops.logical_not, x.expr, limit=1)
    operator = (ops.negative, ops.abs, ops.relu, ops.relu6)[extra % 4]
    return b.emit(operator, x.expr, limit=x.limit if x.is_float or dt.is_signed(x.dtype) else np.inf, error=x.error)


@exact_action
def sign(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    return b.emit(ops.sign, x.expr, limit=1) if x.is_float or dt.is_signed(x.dtype) else None


@exact_action
def rounded(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if not x.is_float:
        return None
    half = b.emit(ops.multiply, x.expr, constant(np.array(0.5, dt.to_numpy(x.dtype))), limit=x.limit)
    operator = (ops.floor, ops.ceil, ops.round)[extra % 3]
    return b.emit(operator, half.expr, limit=x.limit) if half is not None else None


@action
def clip(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    if x.dtype == "bool":
        return None
    low = 0 if x.dtype.startswith("uint") else -(extra % 3)
    return b.emit(ops.clip, x.expr, limit=3, error=x.error, min=low, max=extra % 4)


@action
def arithmetic(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    other = converted(b, y, x.dtype) or x
    if x.dtype == "bool":
        return b.emit((ops.logical_and, ops.logical_or)[extra % 2], x.expr, other.expr, limit=1)
    if extra % 5 == 2:
        error = x.limit * other.error + other.limit * x.error + x.error * other.error
        return b.emit(ops.multiply, x.expr, other.expr, limit=x.limit * other.limit, error=error)
    operator = (ops.add, ops.subtract, ops.add, ops.maximum, ops.minimum)[extra % 5]
    return b.emit(operator, x.expr, other.expr, limit=x.limit + other.limit, error=x.error + other.error)


@exact_action
def compare(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    family = (ops.equal, ops.not_equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal)
    other = converted(b, y, x.dtype) or x
    return b.emit(family[extra % 6], x.expr, other.expr, limit=1)


@exact_action
def where(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    first, second = b.values[extra % len(b.values)], b.values[extra // 2 % len(b.values)]
    condition, second_ = converted(b, x, "bool"), converted(b, second, first.dtype) or first
    if condition is None:
        return None
    limit, error = max(first.limit, second_.limit), max(first.error, second_.error)
    return b.emit(ops.where, condition.expr, first.expr, second_.expr, limit=limit, error=error)


@exact_action
def divide(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    """``//`` and ``%`` by a constant, or by a value that is at least one."""
    x = x if dt.is_int(x.dtype) else converted(b, x, ("int32", "int64", "int8", "uint8", "int4")[extra % 5]) or x
    divisor = constant(np.array((1, 2, 3, 7, 5)[extra % 5], dt.to_numpy(x.dtype)))
    if extra > 30:
        other = converted(b, y, x.dtype) or x
        one = constant(np.array(1, dt.to_numpy(x.dtype)))
        magnitude = b.emit(ops.maximum, other.expr, one, limit=other.limit)
        divisor = magnitude.expr if magnitude is not None else divisor
    operator = (ops.floor_divide, ops.floor_mod)[extra % 2]
    return b.emit(operator, x.expr, divisor, limit=x.limit + 8)


@exact_action
def power(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    x = x if dt.is_int(x.dtype) else converted(b, x, "int32") or x
    return b.emit(ops.power, x.expr, constant(np.array(extra % 4, dt.to_numpy(x.dtype))), limit=max(x.limit, 2) ** 3)


@action
def cast(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    return converted(b, x, INSIDE[extra % len(INSIDE)])


@action
def tamed(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """The value clipped to a small range, so that products of it stay exact."""
    return limited(b, x, 1 + extra % 4)
