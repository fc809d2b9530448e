"""ATen's elementwise functions and dtype conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....ir import dtype as dt
from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr
from ...blocks import truncated_quotient, truncated_remainder
from ...values import Number, Value, cast, dtype_of, floating, promoted

Row = Callable[..., Any]


def _of_floats(op: Row) -> Row:
    return lambda x: op(floating(x))


def _binary(op: Row) -> Row:
    return lambda x, y: op(*promoted(x, y))


def _logical(op: Row) -> Row:
    return lambda x, y: op(_truth(x), _truth(y))


def _bits(on_integers: Row, on_truth: Row) -> Row:
    def row(x: Value, y: Value) -> Expr:
        a, b = promoted(x, y)
        return (on_truth if dtype_of(a) == "bool" else on_integers)(a, b)

    return row


def _truth(x: Value) -> Expr:
    return cast(x, "bool") if dtype_of(x) == "bool" else ops.not_equal(x, 0)


def _scaled(y: Value, alpha: Number) -> Value:
    return y if isinstance(alpha, int) and alpha == 1 else ops.multiply(*promoted(y, alpha))


def _add(x: Value, y: Value, alpha: Number = 1) -> Expr:
    return ops.add(*promoted(x, _scaled(y, alpha)))


def _sub(x: Value, y: Value, alpha: Number = 1) -> Expr:
    return ops.subtract(*promoted(x, _scaled(y, alpha)))


def _div(x: Value, y: Value, rounding_mode: str | None = None) -> Expr:
    a, b = promoted(x, y)
    if rounding_mode == "floor":
        return ops.floor_divide(a, b)
    if rounding_mode is None:
        return ops.divide(floating(a), floating(b))
    if dt.is_float(dtype_of(a)):
        return _trunc(ops.divide(a, b))
    return truncated_quotient(a, b)


def _trunc(x: Expr) -> Expr:
    return ops.multiply(ops.sign(x), ops.floor(ops.abs(x)))


def _ignoring_nan(op: Row) -> Row:
    """Row of fmax and fmin, whose result is NaN only if both operands are."""

    def row(x: Expr, y: Expr) -> Expr:
        a, b = promoted(x, y)
        return ops.where(ops.not_equal(a, a), b, ops.where(ops.not_equal(b, b), a, op(a, b)))

    return row


def _hypot(x: Expr, y: Expr) -> Expr:
    a, b = (floating(v) for v in promoted(x, y))
    return ops.sqrt(ops.add(ops.square(a), ops.square(b)))


def _pow(x: Value, exponent: Value) -> Expr:
    powers: dict[Any, Row] = {0.5: ops.sqrt, 1: lambda v: v, 2: ops.square, 3: lambda v: ops.multiply(v, ops.square(v))}
    if isinstance(exponent, int | float) and exponent in powers:
        return powers[exponent](cast(x, dtype_of(x)) if isinstance(exponent, int) else floating(x))
    return ops.power(*promoted(x, exponent))


def _clamp(x: Expr, min: Value | None = None, max: Value | None = None) -> Expr:
    x = x if min is None else ops.maximum(*promoted(x, min))
    return x if max is None else ops.minimum(*promoted(x, max))


def _gelu(x: Expr, approximate: str = "none") -> Expr:
    return ops.gelu_tanh(x) if approximate == "tanh" else ops.gelu(x)


def _elu(x: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    low = ops.multiply(ops.subtract(ops.exp(ops.multiply(ops.minimum(x, 0.0), input_scale)), 1.0), alpha)
    return ops.multiply(ops.where(ops.greater(x, 0.0), x, low), scale)


def _hardsigmoid(x: Expr) -> Expr:
    return ops.divide(ops.relu6(ops.add(x, 3.0)), 6.0)


def _bitwise_not(x: Expr) -> Expr:
    return ops.logical_not(x) if dtype_of(x) == "bool" else ops.subtract(ops.negative(x), 1)


def _where(condition: Expr, x: Value, y: Value) -> Expr:
    return ops.where(condition, *promoted(x, y))


def _masked_fill(x: Expr, mask: Expr, value: Value) -> Expr:
    return ops.where(mask, cast(value, dtype_of(x)), x)


def _addcmul(x: Expr, y: Expr, z: Expr, value: Number = 1) -> Expr:
    return _add(x, ops.multiply(*promoted(y, z)), value)


def _converted(x: Expr, dtype: str | None = None, *_: Any, **__: Any) -> Expr:
    return x if dtype is None else cast(x, dtype) if dtype != "bool" else _truth(x)


ROWS: dict[str, Row] = {
    "__lshift__": _binary(ops.left_shift),
    "__rshift__": _binary(ops.right_shift),
    "_to_copy": _converted,
    "abs": ops.abs,
    "acos": _of_floats(ops.acos),
    "acosh": _of_floats(ops.acosh),
    "add": _add,
    "addcmul": _addcmul,
    "alias": lambda x: x,
    "asin": _of_floats(ops.asin),
    "asinh": _of_floats(ops.asinh),
    "atan": _of_floats(ops.atan),
    "atan2": lambda x, y: ops.atan2(*map(floating, promoted(x, y))),
    "atanh": _of_floats(ops.atanh),
    "bitwise_and": _bits(ops.bitwise_and, ops.logical_and),
    "bitwise_left_shift": _binary(ops.left_shift),
    "bitwise_not": _bitwise_not,
    "bitwise_or": _bits(ops.bitwise_or, ops.logical_or),
    "bitwise_right_shift": _binary(ops.right_shift),
    "bitwise_xor": _bits(ops.bitwise_xor, ops.logical_xor),
    "ceil": ops.ceil,
    "clamp": _clamp,
    "clamp_max": lambda x, max: _clamp(x, None, max),
    "clamp_min": lambda x, min: _clamp(x, min),
    "clone": lambda x: x,
    "copy": lambda x, source, non_blocking=False: ops.broadcast_to(cast(source, dtype_of(x)), shape_of(x)),
    "cos": _of_floats(ops.cos),
    "cosh": _of_floats(ops.cosh),
    "detach": lambda x: x,
    "div": _div,
    "elu": _elu,
    "eq": _binary(ops.equal),
    "erf": _of_floats(ops.erf),
    "erfc": lambda x: ops.subtract(cast(1.0, dtype_of(floating(x))), ops.erf(floating(x))),
    "exp": _of_floats(ops.exp),
    "exp2": lambda x: ops.exp(ops.multiply(floating(x), math.log(2))),
    "expm1": lambda x: ops.subtract(ops.exp(floating(x)), 1.0),
    "floor": ops.floor,
    "floor_divide": _binary(ops.floor_divide),
    "fmax": _ignoring_nan(ops.maximum),
    "fmin": _ignoring_nan(ops.minimum),
    "fmod": _binary(truncated_remainder),
    "ge": _binary(ops.greater_equal),
    "gelu": _gelu,
    "gt": _binary(ops.greater),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: ops.multiply(x, _hardsigmoid(x)),
    "hardtanh": lambda x, min=-1.0, max=1.0: _clamp(x, min, max),
    "hypot": _hypot,
    "isinf": lambda x: ops.equal(ops.abs(x), math.inf),
    "isnan": lambda x: ops.not_equal(x, x),
    "le": _binary(ops.less_equal),
    "leaky_relu": lambda x, slope=0.01: ops.leakyrelu(x, alpha=slope),
    "log": _of_floats(ops.log),
    "log10": lambda x: ops.multiply(ops.log(floating(x)), 1 / math.log(10)),
    "log1p": lambda x: ops.log(ops.add(floating(x), 1.0)),
    "log2": lambda x: ops.multiply(ops.log(floating(x)), 1 / math.log(2)),
    "logical_and": _logical(ops.logical_and),
    "logical_not": lambda x: ops.logical_not(_truth(x)),
    "logical_or": _logical(ops.logical_or),
    "logical_xor": _logical(ops.logical_xor),
    "lt": _binary(ops.less),
    "masked_fill": _masked_fill,
    "maximum": _binary(ops.maximum),
    "minimum": _binary(ops.minimum),
    "mish": lambda x: ops.multiply(x, ops.tanh(ops.softplus(x))),
    "mul": _binary(ops.multiply),
    "ne": _binary(ops.not_equal),
    "neg": ops.negative,
    "pow": _pow,
    "reciprocal": lambda x: ops.divide(cast(1.0, dtype_of(floating(x))), floating(x)),
    "relu": ops.relu,
    "relu6": ops.relu6,
    "remainder": _binary(ops.floor_mod),
    "round": ops.round,
    "rsqrt": _of_floats(ops.rsqrt),
    "rsub": lambda x, y, alpha=1: _sub(y, x, alpha),
    "sigmoid": _of_floats(ops.sigmoid),
    "sign": ops.sign,
    "silu": ops.silu,
    "sin": _of_floats(ops.sin),
    "sinh": _of_floats(ops.sinh),
    "softplus": lambda x, beta=1.0, threshold=20.0: ops.softplus(x, beta=beta, threshold=threshold),
    "sqrt": _of_floats(ops.sqrt),
    "square": ops.square,
    "sub": _sub,
    "tan": _of_floats(ops.tan),
    "tanh": _of_floats(ops.tanh),
    "trunc": _trunc,
    "where": _where,
}
"""Names without an overload apply to all overloads."""
