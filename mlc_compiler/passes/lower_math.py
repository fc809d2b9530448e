"""Elementary functions as arithmetic that vectorizes: range reduction and polynomials in float32.

Coefficients: Cephes mathematical library (S. L. Moshier), single precision; pi/2 and ln 2 in two parts (Cody, Waite).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.expr import Call, Cast, FloatImm, Let, PrimExpr, Select, Var, const
from ..ir.module import IRModule
from ..ir.visitor import Rewriter
from ..tir.nodes import PrimFunc
from .base import Pass

F32 = "float32"


@dataclass(frozen=True)
class LowerMath(Pass):
    """Replace calls of exp, tanh, sigmoid, erf, sin, cos, log, rsqrt … by arithmetic.

    Other float types are computed in float32 and rounded.
    """

    name = "lower-math"

    def run(self, mod: IRModule) -> IRModule:
        rewrite = _LowerCalls()
        return mod.updated({name: rewrite(f) for name, f in mod.of_type(PrimFunc).items()})


class _LowerCalls(Rewriter):
    def rewrite_Call(self, node: Call) -> PrimExpr:
        args = self(node.args)
        rule = RULES.get(node.op)
        if rule is None:
            return node if args is node.args else Call(node.op, args, node.dtype)
        if node.dtype == F32:
            return rule(*args)
        return Cast(node.dtype, rule(*(Cast(F32, a) for a in args)))


def _f(value: float) -> FloatImm:
    return FloatImm(value, F32)


def _fma(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    return Call("fma", (a, b, c), a.dtype)


def _polynomial(x: PrimExpr, coefficients: Sequence[float], dtype: str = F32) -> PrimExpr:
    """Horner's scheme, highest power first."""
    result: PrimExpr = FloatImm(coefficients[0], dtype)
    for c in coefficients[1:]:
        result = _fma(result, x, FloatImm(c, dtype))
    return result


def _let(name: str, value: PrimExpr, body: Callable[[Var], PrimExpr]) -> PrimExpr:
    var = Var(name, value.dtype)
    return Let(var, value, body(var))


def _power_of_two(n: PrimExpr) -> PrimExpr:
    """2 ** n for an int32 n of a normal result."""
    return Call("reinterpret", ((n + const(127, "int32")) << const(23, "int32"),), F32)


_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exp(x: PrimExpr) -> PrimExpr:
    """e ** x: x = n ln 2 + r, a polynomial in r, times 2 ** n in two steps so that neither overflows early."""

    def body(v: Var) -> PrimExpr:
        limited = _let("hi", Select(v > _f(89.0), _f(89.0), v), lambda h: Select(h < _f(-104.0), _f(-104.0), h))
        return _let("xc", limited, lambda xc: _let("n", turns(xc), reduced(v, xc)))

    def turns(xc: Var) -> PrimExpr:
        return Call("round", (xc * _f(1.44269504088896341),), F32)

    def reduced(v: Var, xc: Var) -> Callable[[Var], PrimExpr]:
        def with_n(n: Var) -> PrimExpr:
            r = _fma(n, _f(2.12194440e-4), _fma(n, _f(-0.693359375), xc))
            return _let("r", r, lambda rv: scaled(v, n, rv))

        return with_n

    def scaled(v: Var, n: Var, r: Var) -> PrimExpr:
        p = _fma(_polynomial(r, _EXP), r * r, r + _f(1.0))
        half = Cast("int32", n) >> const(1, "int32")
        value = _let("h", half, lambda h: p * _power_of_two(h) * _power_of_two(Cast("int32", n) - h))
        return Select(v != v, v, value)

    return _let("x", x, body)


def sigmoid(x: PrimExpr) -> PrimExpr:
    """1 / (1 + exp(-x))"""
    return _f(1.0) / (_f(1.0) + exp(_f(0.0) - x))


_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def tanh(x: PrimExpr) -> PrimExpr:
    """A polynomial where |x| < 0.625, elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign of x."""

    def body(v: Var) -> PrimExpr:
        magnitude = Call("abs", (v,), F32)
        large = _f(1.0) - _f(2.0) / (exp(magnitude * _f(2.0)) + _f(1.0))
        signed = Select(v < _f(0.0), _f(0.0) - large, large)
        small = _let("z", v * v, lambda z: _fma(_polynomial(z, _TANH) * z, v, v))
        return Select(magnitude < _f(0.625), small, signed)

    return _let("x", x, body)


def rsqrt(x: PrimExpr) -> PrimExpr:
    """1 / sqrt(x)"""
    return _f(1.0) / Call("sqrt", (x,), F32)


_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def _sin_cos(x: PrimExpr, quadrant: int) -> PrimExpr:
    """sin(x + quadrant * pi / 2), the argument reduced by multiples of pi/2 in float64."""

    def reduced(n: Var) -> PrimExpr:
        wide = _fma(n, FloatImm(-1.5707963267948966, "float64"), Cast("float64", x))
        exact = _fma(n, FloatImm(-6.123233995736766e-17, "float64"), wide)
        q = (Cast("int64", n) + const(quadrant, "int64")) & const(3, "int64")
        return _let("r", Cast(F32, exact), lambda r: _let("q", q, lambda qv: by_quadrant(r, qv)))

    def by_quadrant(r: Var, q: Var) -> PrimExpr:
        sine = _let("z", r * r, lambda z: _fma(_polynomial(z, _SIN) * z, r, r))
        cosine = _let("z", r * r, lambda z: _fma(_polynomial(z, _COS), z * z, _fma(z, _f(-0.5), _f(1.0))))
        value = Select((q & const(1, "int64")) == const(1, "int64"), cosine, sine)
        return _let("s", value, lambda s: Select(q >= const(2, "int64"), _f(0.0) - s, s))

    turns = Call("round", (Cast("float64", x) * FloatImm(0.63661977236758134308, "float64"),), "float64")
    return _let("n", turns, reduced)


def sin(x: PrimExpr) -> PrimExpr:
    """Sine of radians."""
    return _let("x", x, lambda v: _sin_cos(v, 0))


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians."""
    return _let("x", x, lambda v: _sin_cos(v, 1))


_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def log(x: PrimExpr) -> PrimExpr:
    """Natural logarithm: x = m 2 ** e with m in [sqrt(1/2), sqrt(2)), a polynomial in m - 1; subnormals scaled up."""
    i32 = "int32"

    def body(v: Var) -> PrimExpr:
        tiny = v < _f(1.17549435e-38)
        scaled = Select(tiny, v * _f(8388608.0), v)
        return _let("bits", Call("reinterpret", (scaled,), i32), lambda b: split(v, tiny, b))

    def split(v: Var, tiny: PrimExpr, b: Var) -> PrimExpr:
        shifted = b - const(0x3F3504F3, i32)
        exponent = shifted >> const(23, i32)
        mantissa = Call("reinterpret", (b - (exponent << const(23, i32)),), F32)
        e = Cast(F32, exponent) - Select(tiny, _f(23.0), _f(0.0))
        return _let("e", e, lambda ev: _let("m", mantissa - _f(1.0), lambda m: finish(v, ev, m)))

    def finish(v: Var, e: Var, m: Var) -> PrimExpr:
        z = m * m
        tail = _fma(e, _f(-2.12194440e-4), _fma(z, _f(-0.5), _polynomial(m, _LOG) * m * z))
        value = _fma(e, _f(0.693359375), m + tail)
        special = Select(v == _f(0.0), _f(float("-inf")), _f(float("nan")))
        infinite = Select(v == _f(float("inf")), v, value)
        return Select(v > _f(0.0), infinite, special)

    return _let("x", x, body)


RULES: dict[str, Callable[..., PrimExpr]] = {
    "exp": exp,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "rsqrt": rsqrt,
    "sin": sin,
    "cos": cos,
    "log": log,
}
