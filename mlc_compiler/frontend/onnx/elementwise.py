"""ONNX's elementwise operators."""

from __future__ import annotations

import math
from functools import reduce

import ml_dtypes

from ...ir import dtype as dt
from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import cast, dtype_of, promoted
from .arrays import Row, dtype_named


def _variadic(op: Row) -> Row:
    return lambda *operands: reduce(op, operands)


def _cast(x: Expr, *, to: int, saturate: int = 1) -> Expr:
    """saturate: numbers and infinity beyond the range of a float8 dtype become its extreme finite numbers."""
    dtype = dtype_named(to)
    if saturate and dtype.startswith("float8"):
        most = float(ml_dtypes.finfo(dtype).max)
        x = ops.where(ops.greater(ops.abs(x), most), ops.multiply(ops.sign(x), most), x)  # NaN stays
    return cast(x, dtype)


def _clip(x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


def _modulo(x: Expr, y: Expr, *, fmod: int = 0) -> Expr:
    return blocks.truncated_remainder(x, y) if fmod else ops.floor_mod(x, y)


def _shifted(x: Expr, y: Expr, *, direction: bytes) -> Expr:
    return (ops.left_shift if direction == b"LEFT" else ops.right_shift)(x, y)


def _is_infinite(x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    sides = [v for v, wanted in ((math.inf, detect_positive), (-math.inf, detect_negative)) if wanted]
    found = [ops.equal(x, v) for v in sides]
    return _variadic(ops.logical_or)(*found) if found else blocks.filled(shape_of(x), False, "bool")


def _mean(*operands: Expr) -> Expr:
    return ops.divide(_variadic(ops.add)(*operands), float(len(operands)))


def _hard_sigmoid(x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return ops.clip(ops.add(ops.multiply(x, alpha), beta), min=0.0, max=1.0)


def _elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    low = ops.multiply(ops.subtract(ops.exp(ops.minimum(x, 0.0)), 1.0), alpha)
    return ops.where(ops.greater(x, 0.0), x, low)


def _selu(x: Expr, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Expr:
    return ops.multiply(_elu(x, alpha=alpha), gamma)


ELEMENTWISE: dict[str, Row] = {
    "Abs": ops.abs,
    "Acos": ops.acos,
    "Acosh": ops.acosh,
    "Add": ops.add,
    "And": ops.logical_and,
    "Asin": ops.asin,
    "Asinh": ops.asinh,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "BitShift": _shifted,
    "BitwiseAnd": ops.bitwise_and,
    "BitwiseNot": lambda x: ops.subtract(ops.negative(x), 1),
    "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
    "Cast": _cast,
    "Ceil": ops.ceil,
    "Clip": _clip,
    "Cos": ops.cos,
    "Cosh": ops.cosh,
    "Div": lambda a, b: (ops.divide if dt.is_float(dtype_of(a)) else blocks.truncated_quotient)(a, b),
    "Elu": _elu,
    "Equal": ops.equal,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Floor": ops.floor,
    "Gelu": lambda x, *, approximate=b"none": (ops.gelu_tanh if approximate == b"tanh" else ops.gelu)(x),
    "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x: ops.multiply(x, _hard_sigmoid(x, alpha=1 / 6)),
    "IsInf": _is_infinite,
    "IsNaN": lambda x: ops.not_equal(x, x),
    "LeakyRelu": lambda x, *, alpha=0.01: ops.leakyrelu(x, alpha=alpha),
    "Less": ops.less,
    "LessOrEqual": ops.less_equal,
    "Log": ops.log,
    "Max": _variadic(ops.maximum),
    "Mean": _mean,
    "Min": _variadic(ops.minimum),
    "Mish": lambda x: ops.multiply(x, ops.tanh(ops.softplus(x))),
    "Mod": _modulo,
    "Mul": ops.multiply,
    "Neg": ops.negative,
    "Not": ops.logical_not,
    "Or": ops.logical_or,
    "PRelu": lambda x, slope: ops.where(ops.less(x, 0.0), ops.multiply(x, slope), x),
    "Pow": lambda x, y: ops.power(x, cast(y, dtype_of(x))),
    "Reciprocal": lambda x: ops.divide(cast(1.0, dtype_of(x)), x),
    "Relu": ops.relu,
    "Round": ops.round,
    "Selu": _selu,
    "Sigmoid": ops.sigmoid,
    "Sign": ops.sign,
    "Sin": ops.sin,
    "Sinh": ops.sinh,
    "Softplus": ops.softplus,
    "Sqrt": ops.sqrt,
    "Sub": ops.subtract,
    "Sum": _variadic(ops.add),
    "Tan": ops.tan,
    "Tanh": ops.tanh,
    "Where": lambda c, x, y: ops.where(c, *promoted(x, y)),
    "Xor": ops.logical_xor,
}
