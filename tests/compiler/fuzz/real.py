"""Elementary functions and norms, whose results may differ within error bounds.

A compiled elementary function is within 2 ulp of float32, and the interpreter's is correctly rounded:
``FUNCTION`` bounds their difference. Errors of operands are multiplied by the maximum slope of the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mlc_compiler.relax import ops
from mlc_compiler.relax.nodes import Expr, constant
from mlc_compiler.relax.ops.registry import Operator
from tests.compiler.fuzz.reductions import any_order, may_be_empty
from tests.compiler.fuzz.values import INNER, Builder, Value, action, axis_of, converted, limited

FUNCTION = 8 * INNER
SMALL = 4

CURVES: Sequence[tuple[Operator, float, Callable[[float], float]]] = (
    (ops.exp, math.exp(SMALL + 1), math.exp),
    (ops.tanh, 1.0, lambda x: 1.0),
    (ops.sigmoid, 0.25, lambda x: 1.0),
    (ops.erf, 1.2, lambda x: 1.0),
    (ops.sin, 1.0, lambda x: 1.0),
    (ops.cos, 1.0, lambda x: 1.0),
    (ops.softplus, 1.0, lambda x: x + 1),
    (ops.leakyrelu, 1.0, lambda x: x),
    (ops.silu, 1.1, lambda x: x),
    (ops.gelu, 1.2, lambda x: x),
    (ops.gelu_tanh, 1.2, lambda x: x),
)
"""Operators, their maximum slope, and a bound of their magnitude for arguments up to x."""
FROM_ONE: Sequence[tuple[Operator, float, Callable[[float], float]]] = (
    (ops.log, 1.0, lambda x: max(1.0, math.log(x))),
    (ops.sqrt, 0.5, math.sqrt),
    (ops.rsqrt, 0.5, lambda x: 1.0),
)


def as_float(b: Builder, x: Value) -> Value | None:
    """The value as floats from -4 to 4."""
    x = x if x.is_float else converted(b, x, "float32") or x
    return limited(b, x, SMALL) if x.is_float else None


@action
def curve(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    value, (operator, slope, size) = as_float(b, x), CURVES[extra % len(CURVES)]
    if value is None:
        return None
    limit = size(value.limit)
    return b.emit(operator, value.expr, limit=limit, error=slope * value.error + 4 * FUNCTION * max(1.0, limit))


@action
def curve_from_one(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    value, (operator, slope, size) = as_float(b, x), FROM_ONE[extra % len(FROM_ONE)]
    above = _at_least_one(b, value)
    if above is None:
        return None
    return b.emit(operator, above.expr, limit=size(above.limit), error=slope * above.error + FUNCTION * above.limit)


def _at_least_one(b: Builder, x: Value | None) -> Value | None:
    if x is None:
        return None
    return b.emit(ops.maximum, x.expr, _ones(x.dtype, ()), limit=max(x.limit, 1.0), error=x.error)


def _ones(dtype: str, shape: tuple[int, ...]) -> Expr:
    return constant((np.arange(math.prod(shape)) % 2 + 1).reshape(shape).astype(dtype))


@action
def quotient(b: Builder, x: Value, y: Value, extra: int) -> Value | None:
    value = as_float(b, x)
    other = converted(b, y, value.dtype) if value is not None else None
    below = _at_least_one(b, other)
    if value is None or below is None:
        return None
    error = value.error + value.limit * below.error + 2 * INNER * value.limit
    return b.emit(ops.divide, value.expr, below.expr, limit=value.limit, error=error)


@action
def softmax(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    value = as_float(b, x)
    if value is None or not value.rank:
        return None
    axis = axis_of(value, extra)
    count = b.sizes(value)[axis]
    exponent = value.error + 2 * INNER * value.limit
    error = 2 * math.expm1(2 * exponent) + 2 * FUNCTION + 2 * count * INNER
    if extra % 3 == 0:
        limit = 2 * value.limit + math.log(max(count, 1)) + 1
        return b.emit(ops.log_softmax, value.expr, limit=limit, error=2 * (error + exponent), axis=axis)
    return b.emit(ops.softmax, value.expr, limit=1, error=error, axis=axis)


@action
def norm(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    """RMS norm, layer norm and group norm over the last axis, with weights of 1 and 2."""
    value = as_float(b, x)
    size = b.fixed(value, -1) if value is not None and value.rank else None
    if value is None or not size:
        return None
    epsilon = (0.25, 1.0)[extra % 2]
    weight = _ones(("float32", value.dtype)[extra % 3 % 2], (size,))
    centered = 2 * value.error + 4 * size * INNER * value.limit
    limit = 2 * math.sqrt(size) + 2
    error = 4 * centered / math.sqrt(epsilon) + (size + 16) * INNER * limit
    if extra % 4 < 2:
        return b.emit(ops.rms_norm, value.expr, weight, limit=limit, error=error, axes=(-1,), epsilon=epsilon)
    if extra % 7 == 0 and value.rank > 1 and size % 2 == 0:
        groups = {"num_groups": 2, "channel_axis": -1, "epsilon": epsilon}
        return b.emit(ops.group_norm, value.expr, weight, limit=limit, error=error, **groups)
    given = (value.expr, weight, weight) if extra % 5 else (value.expr, weight)
    return b.emit(ops.layer_norm, *given, limit=limit, error=error, axes=(-1,), epsilon=epsilon)


@action
def moment(b: Builder, x: Value, _: Value, extra: int) -> Value | None:
    value = as_float(b, x)
    if value is None or not value.rank:
        return None
    axes = [axis_of(value, extra)] if extra % 3 else list(range(value.rank))
    if may_be_empty(b, value, axes):
        return None
    count = float(np.prod([b.sizes(value)[a] for a in axes]))
    mean = any_order(value.limit, value.error, count) / count + 2 * INNER * value.limit
    if extra % 2:
        return b.emit(ops.mean, value.expr, limit=value.limit, error=mean, axis=axes, keepdims=extra % 4 > 1)
    spread = 4 * value.limit * (value.error + mean) + 8 * count * INNER * value.limit**2
    return b.emit(ops.variance, value.expr, limit=4 * value.limit**2, error=spread, axis=axes, keepdims=extra % 4 > 1)
