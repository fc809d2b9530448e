"""Exponential functions: a polynomial on a short interval around zero, times a power of two."""

from __future__ import annotations

from ...ir.expr import PrimExpr, Select, Var, const
from .build import (
    F32,
    F64,
    I32,
    I64,
    ROUNDER,
    Lets,
    bits,
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

_LOG2_E, _LN2 = 1.4426950408889634, 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # 9 significant bits: products with small integers are exact
_EXP = (1.38220203e-03, 8.36885069e-03, 4.16682549e-02, 1.66665196e-01, 4.99999940e-01)
_EXP_COARSE = (1.65661767e-01, 5.04989326e-01, 1.00016606e00, 9.99927342e-01)
_EXP2 = (1.43221432e-05, 1.54521971e-04, 1.33379642e-03, 9.61808674e-03, 5.55040501e-02, 2.40226507e-01, 6.93147182e-01)
_EXP2_WIDE = (
    1.5201900323490596e-05, 1.5469290967462174e-04, 1.3333922655874055e-03, 9.6180272543181147e-03,
    5.5504103533339330e-02, 2.4022651198151557e-01, 6.9314718072848203e-01, 9.9999999996168276e-01,
)  # fmt: skip
_TANH = (-5.69853699e-03, 2.06328146e-02, -5.37375882e-02, 1.33314133e-01, -3.33332807e-01)


def _scaled(let: Lets, value: PrimExpr, k: Var) -> PrimExpr:
    """``value * 2 ** k`` in two steps, so that neither overflows or loses bits before the result does."""
    half = let("half", k >> const(1, I32))
    return value * power_of_two(half) * power_of_two(k - half)


def exp(x: PrimExpr) -> PrimExpr:
    """e ** x: with x = n ln 2 + r, a polynomial in r times 2 ** n."""
    let = Lets()
    v = let("x", clamped(x, -104.0, 89.0))
    n, k = nearest(let, fma(v, f32(_LOG2_E), f32(ROUNDER[F32])))
    exact = let("exact", fma(n, f32(-_LN2_HIGH), v))
    r = let("r", fma(n, f32(-_LN2_LOW), exact))
    lost = fma(n, f32(-_LN2_LOW), exact - r)
    p = let("p", fma(polynomial(r, _EXP) * r, r, lost) + r + f32(1.0))
    return let.into(_scaled(let, p, k))


def coarse_exp(x: PrimExpr) -> PrimExpr:
    """e ** x for x <= 0 that will be rounded to bfloat16: relative error below 2 ** -13; 0 below -87."""
    let = Lets()
    v = let("x", x)
    biased = let("biased", fma(v, f32(_LOG2_E), f32(ROUNDER[F32] + 127)))  # exponent of the power in its low bits
    r = let("r", fma(biased - f32(ROUNDER[F32] + 127), f32(-_LN2), v))
    power = from_bits(bits(biased) << const(23, I32))
    return let.into(Select(v < f32(-87.0), f32(0.0), polynomial(r, _EXP_COARSE) * power))


def exp2(x: PrimExpr) -> PrimExpr:
    """2 ** x"""
    let = Lets()
    v = let("x", clamped(x, -151.0, 129.0))
    n, k = nearest(let, v + f32(ROUNDER[F32]))
    r = let("r", v - n)
    p = let("p", fma(polynomial(r, _EXP2), r, f32(1.0)))
    return let.into(_scaled(let, p, k))


def exp2_wide(x: PrimExpr) -> PrimExpr:
    """2 ** x of a float64, to the accuracy of float32; results out of its range become infinite or 0 once rounded."""
    let = Lets()
    v = let("y", clamped(x, -200.0, 200.0))
    n, k = nearest(let, v + wide(ROUNDER[F64]))
    r = let("r", v - n)
    return let.into(from_bits(bits(polynomial(r, _EXP2_WIDE)) + (k << const(52, I64))))


def exp10(x: PrimExpr) -> PrimExpr:
    """10 ** x"""
    return from_wide(exp2_wide(wide(x) * wide(3.321928094887362)))


def sigmoid(x: PrimExpr) -> PrimExpr:
    """``1 / (1 + exp(-x))``, as ``exp(x) / (1 + exp(x))`` for negative x; corrects the rounding error of the sum."""
    let = Lets()
    v = let("v", x)
    e = let("e", exp(negated(magnitude(v))))
    total = let("total", e + f32(1.0))
    quotient = let("quotient", Select(v < f32(0.0), e, f32(1.0)) / total)
    inverse = Select(v < f32(0.0), f32(1.0) - quotient, quotient)
    lost = let("lost", (total - f32(1.0) - e) * inverse)
    return let.into(fma(quotient, lost, quotient))


def tanh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic tangent: a polynomial where ``|x| < 0.625``, else ``1 - 2 / (exp(2|x|) + 1)`` with the sign of x."""
    let = Lets()
    v = let("v", x)
    a = let("a", magnitude(v))
    large = f32(1.0) - f32(2.0) / (exp(a * f32(2.0)) + f32(1.0))
    z = let("z", a * a)
    small = fma(polynomial(z, _TANH) * z, a, a)
    return let.into(copysign(Select(a < f32(0.625), small, large), v))
