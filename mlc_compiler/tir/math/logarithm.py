"""Logarithms and powers, computed in float64 and rounded once."""

from __future__ import annotations

import math

from ...ir.expr import BinaryOp, Call, FloatImm, Not, PrimExpr, Select, Var, const, logical_and
from .build import I64, Lets, bits, choose, copysign, f32, from_bits, from_wide, magnitude, polynomial, wide
from .exponential import exp2_wide

_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_LOG2 = (
    2.8290154042867477e-01, 3.1990566981344559e-01, 4.1220925072146825e-01, 5.7707794241703270e-01,
    9.6179669411291280e-01, 2.8853900817778508e+00,
)  # fmt: skip


def log2_wide(x: PrimExpr) -> PrimExpr:
    """log2 of a float64 that is neither negative nor subnormal; -inf for zero; infinity and NaN are returned unchanged.

    With x = m 2 ** e, m in [sqrt(1/2), sqrt(2)): e + 2 atanh((m - 1) / (m + 1)) / ln 2.
    """
    let = Lets()
    v = let("w", x)
    b = let("b", bits(v))
    e = let("e", (b - const(_SQRT_HALF_BITS, I64)) >> const(52, I64))
    m = let("m", from_bits(b - (e << const(52, I64))))
    s = let("s", (m - wide(1.0)) / (m + wide(1.0)))
    z = let("z", s * s)
    value = _small_int(e) + s * polynomial(z, _LOG2)
    infinite = v == wide(math.inf)
    return let.into(choose((v == wide(0.0), wide(-math.inf)), (infinite, v), (v != v, v), otherwise=value))


def _small_int(e: PrimExpr) -> PrimExpr:
    """Convert a small int64 to float64 by arithmetic: not every target has a vector instruction for this conversion."""
    rounder = 1.5 * 2**52
    return from_bits(e + const(0x4338000000000000, I64)) - wide(rounder)


def _logarithm(x: PrimExpr, scale: float) -> PrimExpr:
    let = Lets()
    v = let("v", x)
    value = from_wide(log2_wide(wide(v)) * wide(scale))
    return let.into(Select(v < f32(0.0), f32(math.nan), value))


def log(x: PrimExpr) -> PrimExpr:
    """Natural logarithm; -inf for zero, NaN for negative numbers."""
    return _logarithm(x, math.log(2.0))


def log2(x: PrimExpr) -> PrimExpr:
    """Logarithm to base 2."""
    return _logarithm(x, 1.0)


def log10(x: PrimExpr) -> PrimExpr:
    """Logarithm to base 10."""
    return _logarithm(x, math.log10(2.0))


def log1p(x: PrimExpr) -> PrimExpr:
    """log(1 + x); uses the Taylor series near zero."""
    let = Lets()
    v = let("v", x)
    w = let("d", wide(v))
    series = w - w * w * (wide(0.5) - w * wide(1 / 3))
    value = log2_wide(w + wide(1.0)) * wide(math.log(2.0))
    near = let("near", Select(magnitude(v) < f32(2.0**-10), series, value))
    tiny = magnitude(v) < f32(2.0**-30)
    return let.into(choose((v < f32(-1.0), f32(math.nan)), (tiny, v), otherwise=from_wide(near)))


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """x ** y = 2 ** (y log2 |x|), negative where x is negative and y an odd integer; special values as C's ``pow``."""
    let = Lets()
    base, exponent = let("x", x), let("y", y)
    raised = from_wide(exp2_wide(wide(exponent) * log2_wide(wide(magnitude(base)))))
    return let.into(with_sign_of_base(base, exponent, raised))


def with_sign_of_base(base: Var, exponent: Var, raised: PrimExpr) -> PrimExpr:
    """Apply the sign and the special values of C's ``pow`` to ``raised``, which is ``|base| ** exponent``."""
    let, dtype = Lets(), base.dtype
    a, one = magnitude(base), FloatImm(1.0, dtype)
    infinite = FloatImm(math.inf, dtype)
    is_one = (exponent == FloatImm(0.0, dtype), base == one, logical_and(a == one, magnitude(exponent) == infinite))
    result = let("p", choose(*((c, one) for c in is_one), otherwise=raised))
    integer = let("integer", _is_integer(exponent))
    odd = logical_and(integer, Not(_is_integer(exponent * FloatImm(0.5, dtype))))
    signed = Select(odd, copysign(result, base), result)
    undefined = logical_and(base < FloatImm(0.0, dtype), a < infinite, Not(integer))
    return let.into(Select(undefined, FloatImm(math.nan, dtype), signed))


def _is_integer(x: PrimExpr) -> PrimExpr:
    return BinaryOp("==", x, Call("trunc", (x,), x.dtype))
