"""Elementary functions on GPUs: float32 by the special function units, float64 by arithmetic.

``Call("cuda.NAME", (x,), "float32")`` is the approximation ``NAME`` of the hardware (PTX ISA, "Floating Point
Instructions"): ``ex2``, ``rcp`` and ``rsqrt``, with relative errors of at most 2 ** -22. The arguments are reduced so
that the errors of functions are at most 4 ulp, of ``tan`` 6; sigmoid's results below 2 ** -126 are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ...ir.expr import Call, Cast, PrimExpr, Select, cast, const
from ...tir.math import LIBRARY, POLYNOMIALS, WIDE_RULES, Rule, Rules, through_wide
from ...tir.math.build import (
    F32,
    F64,
    I32,
    I64,
    ROUNDER,
    Lets,
    bits,
    choose,
    clamped,
    copysign,
    f32,
    fma,
    from_bits,
    from_wide,
    magnitude,
    nearest,
    negated,
    polynomial,
    power_of_two,
    wide,
)
from ...tir.math.double import ARITHMETIC, remainder
from ...tir.math.trigonometric import by_quadrant, pack, reduce

SPECIAL_FUNCTIONS = {"cuda.ex2": "ex2.approx.ftz", "cuda.rcp": "rcp.approx.ftz", "cuda.rsqrt": "rsqrt.approx"}
"""Function of float32 -> instruction."""

_SQRT_HALF_BITS = 0x3F3504F3
_ATANH = tuple(2.0 / (2 * i + 1) for i in range(5, 0, -1))
_TANH = (-5.69853699e-03, 2.06328146e-02, -5.37375882e-02, 1.33314133e-01, -3.33332807e-01)
_REDUCED_IN_FLOAT32 = 2.0**15  # up to this, quotients by pi / 2 are below 2 ** 15, and three parts of pi / 2 suffice


def _parts(value: float, count: int = 2) -> list[PrimExpr]:
    """A number as a sum of float32, the first one nearest to it."""
    parts = []
    for _ in range(count):
        parts.append(float(np.float32(value)))
        value -= parts[-1]
    return [f32(part) for part in parts]


_LOG2_E, _LOG2_10 = _parts(math.log2(math.e)), _parts(math.log2(10.0))
_HALF_PI = [f32(1.57079637050628662), f32(-4.37113882867379e-08), f32(-1.71512449e-15)]


def _instruction(name: str, x: PrimExpr) -> PrimExpr:
    return Call(f"cuda.{name}", (x,), F32)


def _exponential(x: PrimExpr, factor: list[PrimExpr]) -> PrimExpr:
    """``2 ** (x * factor)``: ``ex2`` of the fraction, times a power of two."""
    let = Lets()
    v = let("v", x)
    n, k = nearest(let, clamped(v * factor[0], -126.0, 127.0) + f32(ROUNDER[F32]))
    fraction = fma(v, factor[0], negated(n))
    for part in factor[1:]:
        fraction = fma(v, part, fraction)
    return let.into(_instruction("ex2", fraction) * power_of_two(k))


def exp(x: PrimExpr) -> PrimExpr:
    """e ** x"""
    return _exponential(x, _LOG2_E)


def exp2(x: PrimExpr) -> PrimExpr:
    """2 ** x"""
    return _exponential(x, [f32(1.0)])


def exp10(x: PrimExpr) -> PrimExpr:
    """10 ** x"""
    return _exponential(x, _LOG2_10)


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + exp(-x))``"""
    return _instruction("rcp", f32(1.0) + exp(negated(x)))


def tanh(x: PrimExpr) -> PrimExpr:
    """A polynomial where ``|x| < 0.625``, elsewhere ``1 - 2 / (exp(2|x|) + 1)`` with the sign of x."""
    let = Lets()
    v = let("v", x)
    a, z = let("a", magnitude(v)), let("z", v * v)
    large = fma(f32(-2.0), _instruction("rcp", exp(a + a) + f32(1.0)), f32(1.0))
    small = fma(polynomial(z, _TANH) * z, v, v)
    return let.into(Select(a < f32(0.625), small, copysign(large, v)))


def rsqrt(x: PrimExpr) -> PrimExpr:
    """``1 / sqrt(x)``"""
    return _instruction("rsqrt", x)


def _logarithm(scale: float, x: PrimExpr) -> PrimExpr:
    """``scale * log(x)``: with x = m 2 ** e, m in [sqrt(1/2), sqrt(2)), e log 2 + 2 atanh((m - 1) / (m + 1))."""
    let = Lets()
    v = let("v", x)
    subnormal = v < f32(2.0**-126)
    b = let("b", bits(Select(subnormal, v * f32(2.0**23), v)))
    e = let("e", (b - const(_SQRT_HALF_BITS, I32)) >> const(23, I32))
    m = let("m", from_bits(b - (e << const(23, I32))))
    n = let("n", Cast(F32, e) - Select(subnormal, f32(23.0), f32(0.0)))
    s = let("s", (m - f32(1.0)) / (m + f32(1.0)))
    z = let("z", s * s)
    near = let("near", fma(polynomial(z, _ATANH) * z, s, s + s))
    high, low = _parts(scale * math.log(2.0))
    value = fma(n, high, fma(near, f32(scale), n * low))
    special = (v < f32(0.0), f32(math.nan)), (v == f32(0.0), f32(-math.inf)), (v == f32(math.inf), v), (v != v, v)
    return let.into(choose(*special, otherwise=value))


log, log2, log10 = (partial(_logarithm, scale) for scale in (1.0, 1.0 / math.log(2.0), 1.0 / math.log(10.0)))


def log1p(x: PrimExpr) -> PrimExpr:
    """log(1 + x), with a correction for the rounding of the sum."""
    let = Lets()
    v = let("v", x)
    u = let("u", v + f32(1.0))
    value = log(u) - ((u - f32(1.0)) - v) / u
    plain = (u == f32(math.inf), u), (v == f32(-1.0), f32(-math.inf)), (v == f32(0.0), v)
    return let.into(choose(*plain, otherwise=value))


# -- trigonometric functions -------------------------------------------------------------------------------------------


def _reduce(a: PrimExpr) -> PrimExpr:
    """Subtract multiples of pi / 2: in float32, or in float64 for large arguments."""
    let = Lets()
    v = let("a", a)
    small = v < f32(_REDUCED_IN_FLOAT32)
    return let.into(Call("if_then_else", (small, _reduce_small(v), reduce(v)), I64))


def _reduce_small(a: PrimExpr) -> PrimExpr:
    let = Lets()
    n, k = nearest(let, fma(a, f32(2.0 / math.pi), f32(ROUNDER[F32])))
    r = a
    for part in _HALF_PI:
        r = fma(n, negated(part), r)
    return let.into(pack(r, cast(I64, k)))


def sin(x: PrimExpr) -> PrimExpr:
    """Sine of radians; NaN for infinities."""
    return by_quadrant(x, 0, _reduce)


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians; NaN for infinities."""
    return by_quadrant(x, 1, _reduce)


def tan(x: PrimExpr) -> PrimExpr:
    """Tangent of radians; NaN for infinities."""
    let = Lets()
    v = let("v", x)
    return let.into(sin(v) / cos(v))


def fmod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The exact remainder of a division, with the sign of x."""
    return from_wide(remainder(wide(x), wide(y), 7))


_FLOAT32: tuple[Callable[..., PrimExpr], ...] = (exp, exp2, exp10, sigmoid, tanh, rsqrt, log1p, sin, cos, tan, fmod)

ON_GPU: Rules = {
    F32: {
        **POLYNOMIALS,
        **{name: through_wide(name) for name in LIBRARY},
        **{f.__name__: f for f in _FLOAT32},
        **dict[str, Rule](log=log, log2=log2, log10=log10),
    },
    F64: {**ARITHMETIC, **{name: WIDE_RULES[name] for name in ("sigmoid", "rsqrt")}},
}
"""float32 and float64 functions; ``erf`` and ``pow`` of float32 are those of CPUs, which are plain arithmetic."""
