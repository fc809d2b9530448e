"""Elementwise operators, with numpy's broadcasting. Functions of floats below 32 bits are computed in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir import dtype as dt
from ...ir import expr as ir
from ...ir.expr import FloatImm, PrimExpr
from ...tir import te
from .registry import Operator, operator


def wide(value: PrimExpr) -> PrimExpr:
    """Convert a value to the dtype of intermediate results: float32 for narrower floats, else its own."""
    return te.f32(value) if dt.is_float(value.dtype) and dt.bits(value.dtype) < 32 else value


_GELU_SCALE = math.sqrt(2.0 / math.pi)


def _unary(name: str, f: Callable[[PrimExpr], PrimExpr], doc: str = "Element by element.") -> Operator:
    def element(value: PrimExpr) -> PrimExpr:
        return te.cast(f(wide(value)), value.dtype)

    def definition(x: te.Tensor) -> te.Tensor:
        return te.elementwise(name.split(".")[-1], element, x)

    definition.__doc__ = doc
    return operator(name)(definition)


def _binary(name: str, f: Callable[[Any, Any], PrimExpr], doc: str = "Element by element.") -> Operator:
    def definition(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return te.elementwise(name, f, x, y)

    definition.__doc__ = f"{doc} Operands broadcast as in numpy."
    return operator(name)(definition)


add = _binary("add", lambda x, y: x + y)
subtract = _binary("subtract", lambda x, y: x - y)
multiply = _binary("multiply", lambda x, y: x * y)
divide = _binary("divide", lambda x, y: x / y)
floor_divide = _binary("floor_divide", lambda x, y: _floor_divide(x, y), "``floor(x / y)``")
floor_mod = _binary("floor_mod", lambda x, y: _floor_mod(x, y), "The remainder ``x - floor(x / y) * y``.")
power = _binary("power", lambda x, y: _power(x, y), "``x`` to the power of ``y``.")
atan2 = _binary("atan2", lambda x, y: te.cast(te.call("atan2", *_both_wide(x, y)), x.dtype), "The angle of (y, x).")
maximum = _binary("maximum", lambda x, y: _extreme(ir.maximum, x, y), "NaN where either operand is.")
minimum = _binary("minimum", lambda x, y: _extreme(ir.minimum, x, y), "NaN where either operand is.")
equal = _binary("equal", lambda x, y: ir.binary("==", x, y))
not_equal = _binary("not_equal", lambda x, y: ir.binary("!=", x, y))
less = _binary("less", lambda x, y: x < y)
less_equal = _binary("less_equal", lambda x, y: x <= y)
greater = _binary("greater", lambda x, y: x > y)
greater_equal = _binary("greater_equal", lambda x, y: x >= y)
logical_and = _binary("logical_and", lambda x, y: ir.binary("and", x, y))
logical_or = _binary("logical_or", lambda x, y: ir.binary("or", x, y))

logical_xor = _binary("logical_xor", lambda x, y: ir.binary("!=", x, y))
bitwise_and = _binary("bitwise_and", lambda x, y: x & y)
bitwise_or = _binary("bitwise_or", lambda x, y: x | y)
bitwise_xor = _binary("bitwise_xor", lambda x, y: x ^ y)
left_shift = _binary("left_shift", lambda x, y: x << y)
right_shift = _binary("right_shift", lambda x, y: x >> y)

exp = _unary("exp", te.exp)
log = _unary("log", te.log, "The natural logarithm.")
sqrt = _unary("sqrt", te.sqrt)
rsqrt = _unary("rsqrt", te.rsqrt, "``1 / sqrt(x)``")
tanh = _unary("tanh", te.tanh)
sigmoid = _unary("sigmoid", te.sigmoid, "``1 / (1 + exp(-x))``")
erf = _unary("erf", te.erf, "The error function.")
sin = _unary("sin", te.sin)
cos = _unary("cos", te.cos)
tan = _unary("tan", lambda x: te.call("tan", x))
asin = _unary("asin", lambda x: te.call("asin", x))
acos = _unary("acos", lambda x: te.call("acos", x))
atan = _unary("atan", lambda x: te.call("atan", x))
sinh = _unary("sinh", lambda x: te.call("sinh", x))
cosh = _unary("cosh", lambda x: te.call("cosh", x))
asinh = _unary("asinh", lambda x: te.call("asinh", x))
acosh = _unary("acosh", lambda x: te.call("acosh", x))
atanh = _unary("atanh", lambda x: te.call("atanh", x))
square = _unary("square", lambda x: x * x, "``x * x``")
negative = _unary("negative", lambda x: -x)
abs = _unary("abs", lambda x: _absolute(x))
floor = _unary("floor", lambda x: te.call("floor", x))
ceil = _unary("ceil", lambda x: te.call("ceil", x))
round = _unary("round", lambda x: te.call("round", x), "To the nearest integer, halves to the even one.")
logical_not = _unary("logical_not", ir.Not)

sign = _unary("sign", lambda x: te.select(x > 0, ir.const(1, x.dtype), te.select(x < 0, ir.const(-1, x.dtype), x * 0)))

relu = _unary("nn.relu", lambda x: ir.maximum(ir.const(0, x.dtype), x), "``max(x, 0)``; NaN stays.")
relu6 = _unary("nn.relu6", lambda x: _limited(x, 0, 6), "``x`` limited to ``[0, 6]``; NaN stays.")
silu = _unary("nn.silu", lambda x: x * te.sigmoid(x), "``x * sigmoid(x)``")
gelu = _unary("nn.gelu", lambda x: x * 0.5 * (1.0 + te.erf(x * math.sqrt(0.5))), "``x * Phi(x)``")
gelu_tanh = _unary("nn.gelu_tanh", lambda x: _gelu_tanh(x), "The tanh approximation of GELU.")


def _absolute(x: PrimExpr) -> PrimExpr:
    return ir.maximum(x, -x) if dt.is_float(x.dtype) or dt.is_signed(x.dtype) else x


def _limited(x: PrimExpr, low: float, high: float) -> PrimExpr:
    """``x`` limited to ``[low, high]``: a comparison with NaN is false, and selects the second operand."""
    return ir.minimum(high, ir.maximum(low, x))


def _extreme(compare: Callable[[Any, Any], PrimExpr], x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The greater or smaller operand. ``compare`` results in its second operand where one is NaN."""
    if isinstance(y, FloatImm):
        x, y = y, x
    if not dt.is_float(x.dtype) or (isinstance(x, FloatImm) and not math.isnan(x.value)):
        return compare(x, y)
    return te.select(ir.binary("!=", x, x), x, compare(x, y))


def _gelu_tanh(x: PrimExpr) -> PrimExpr:
    return x * 0.5 * (1.0 + te.tanh(_GELU_SCALE * (x + 0.044715 * x * x * x)))


def _floor_divide(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return te.call("floor", x / y) if dt.is_float(x.dtype) else x // y


def _floor_mod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return x - _floor_divide(x, y) * y if dt.is_float(x.dtype) else x % y


def _power(x: Any, y: Any) -> PrimExpr:
    return te.cast(te.call("pow", *_both_wide(x, y)), x.dtype)


def _both_wide(x: Any, y: Any) -> tuple[PrimExpr, PrimExpr]:
    x, y = wide(ir.as_expr(x)), wide(ir.as_expr(y))
    common = dt.promote(x.dtype, y.dtype)
    return te.cast(x, common), te.cast(y, common)


@operator("nn.leakyrelu")
def leakyrelu(x: te.Tensor, *, alpha: float = 0.01) -> te.Tensor:
    """``x`` where it is positive, else ``alpha * x``."""
    return te.elementwise("leakyrelu", lambda v: te.cast(te.select(v > 0, wide(v), wide(v) * alpha), v.dtype), x)


@operator("nn.softplus")
def softplus(x: te.Tensor, *, beta: float = 1.0, threshold: float = 20.0) -> te.Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above ``threshold``."""

    def element(value: PrimExpr) -> PrimExpr:
        scaled = wide(value) * beta
        positive = ir.maximum(scaled, ir.const(0, scaled.dtype)) + log1p(te.exp(-ir.maximum(scaled, -scaled)))
        return te.cast(te.select(scaled > threshold, wide(value), positive / beta), value.dtype)

    return te.elementwise("softplus", element, x)


def log1p(x: PrimExpr) -> PrimExpr:
    """``log(1 + x)`` for x in [0, 1], accurate for small x (Goldberg 1991, theorem 4)."""
    rounded = x + 1.0
    return te.select(ir.binary("==", rounded, ir.const(1.0, x.dtype)), x, te.log(rounded) * (x / (rounded - 1.0)))


@operator("astype")
def astype(x: te.Tensor, *, dtype: str) -> te.Tensor:
    """Cast the elements to ``dtype``: floats round to nearest even, float to integer truncates."""
    return te.elementwise("cast", lambda value: te.cast(value, dtype), x)


@operator("where")
def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """``x`` where ``condition`` (bool) holds, else ``y``."""
    if condition.dtype != "bool":
        raise ValueError(f"condition: got {condition.dtype}; expected bool")
    return te.elementwise("where", te.select, condition, x, y)


@operator("clip")
def clip(x: te.Tensor, *, min: float, max: float) -> te.Tensor:
    """The elements clamped to ``[min, max]``; NaN stays."""
    return te.elementwise("clip", lambda value: _limited(value, min, max), x)
