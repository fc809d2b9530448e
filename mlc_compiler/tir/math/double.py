"""Elementary functions of float64 as arithmetic, for targets without a C library.

Errors are at most 4 ulp (``erf``: 40 ulp). Zeros, infinities and NaN follow the C standard. Polynomials are Taylor
series about zero, long enough for float64 on the reduced range.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.expr import Call, PrimExpr, Select, Var, cast, const, logical_and, maximum, minimum
from .build import (
    F64,
    I64,
    ROUNDER,
    Lets,
    bits,
    choose,
    clamped,
    copysign,
    fma,
    from_bits,
    magnitude,
    nearest,
    negated,
    polynomial,
    wide,
)
from .logarithm import with_sign_of_base

_LN2 = (0.6931471803691238, 1.9082149292705877e-10)  # the first has 32 significant bits: exact times small integers
_LOG10_2 = (0.3010299955494702, 1.1451100898021838e-10)
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_TAN_EIGHTH = math.sqrt(2.0) - 1.0

_EXP = tuple(1.0 / math.factorial(i) for i in range(14, 1, -1))
_ATANH = tuple(2.0 / (2 * i + 1) for i in range(12, 0, -1))
_ATAN = tuple((-1.0) ** i / (2 * i + 1) for i in range(22, 0, -1))
_SINH = tuple(1.0 / math.factorial(2 * i + 1) for i in range(9, 0, -1))
_SIN = tuple((-1.0) ** i / math.factorial(2 * i + 1) for i in range(9, 0, -1))
_COS = tuple((-1.0) ** i / math.factorial(2 * i) for i in range(9, 1, -1))
_ERF = tuple(2.0**i / math.prod(range(1, 2 * i + 2, 2)) for i in range(110, -1, -1))


def _power_of_two(k: PrimExpr) -> PrimExpr:
    return from_bits((k + const(1023, I64)) << const(52, I64))


def _expanded(let: Lets, r: PrimExpr, low: PrimExpr, k: Var) -> PrimExpr:
    """``e ** (r + low) * 2 ** k`` for a small ``r`` and a much smaller ``low``."""
    p = let("p", fma(polynomial(r, _EXP) * r, r, r + low) + wide(1.0))
    half = let("half", k >> const(1, I64))
    return p * _power_of_two(half) * _power_of_two(k - half)


def _nearest(let: Lets, scaled: PrimExpr) -> tuple[Var, Var]:
    return nearest(let, scaled + wide(ROUNDER[F64]))


def exp_of_sum(x: PrimExpr, low: PrimExpr) -> PrimExpr:
    """``e ** (x + low)``, for ``|low|`` below an ulp of ``x``."""
    let = Lets()
    v = let("v", clamped(x, -746.0, 710.0))
    n, k = _nearest(let, v * wide(1.0 / math.log(2.0)))
    high = let("high", fma(n, wide(-_LN2[0]), v))
    lost = let("lost", low - n * wide(_LN2[1]))
    r = let("r", high + lost)
    return let.into(_expanded(let, r, (high - r) + lost, k))


def exp(x: PrimExpr) -> PrimExpr:
    """e ** x"""
    return exp_of_sum(x, wide(0.0))


def exp2(x: PrimExpr) -> PrimExpr:
    """2 ** x"""
    let = Lets()
    v = let("v", clamped(x, -1076.0, 1025.0))
    n, k = _nearest(let, v)
    f = let("f", v - n)
    r = let("r", f * wide(math.log(2.0)))
    low = fma(f, wide(math.log(2.0)), negated(r)) + f * wide(2.3190468138462996e-17)
    return let.into(_expanded(let, r, low, k))


def exp10(x: PrimExpr) -> PrimExpr:
    """10 ** x"""
    let = Lets()
    v = let("v", clamped(x, -325.0, 309.0))
    n, k = _nearest(let, v * wide(math.log2(10.0)))
    f = let("f", fma(n, wide(-_LOG10_2[1]), fma(n, wide(-_LOG10_2[0]), v)))
    r = let("r", f * wide(math.log(10.0)))
    low = fma(f, wide(math.log(10.0)), negated(r)) + f * wide(-2.1707562233822494e-16)
    return let.into(_expanded(let, r, low, k))


# -- logarithms --------------------------------------------------------------------------------------------------------


def _split(let: Lets, v: Var) -> tuple[Var, Var]:
    """``(e, m)`` with ``v = m * 2 ** e`` and m in [sqrt(1/2), sqrt(2)), for a positive finite ``v``; e as float64."""
    subnormal = v < wide(2.0**-1022)
    b = let("b", bits(Select(subnormal, v * wide(2.0**54), v)))
    e = let("e", (b - const(_SQRT_HALF_BITS, I64)) >> const(52, I64))
    m = let("m", from_bits(b - (e << const(52, I64))))
    return let("n", cast(F64, e) - Select(subnormal, wide(54.0), wide(0.0))), m


def _log_parts(let: Lets, m: Var) -> tuple[Var, Var]:
    """``(high, low)`` with ``high + low = log(m)`` for m near 1, by the series of ``2 atanh((m - 1) / (m + 1))``."""
    above, below = let("above", m + wide(1.0)), let("below", m - wide(1.0))
    s = let("s", below / above)
    exact = (m - (above - wide(1.0))) * negated(s)
    rest = let("rest", (fma(negated(s), above, below) + exact) / above)
    z = let("z", s * s)
    return let("twice", s + s), let("low", fma(polynomial(z, _ATANH) * z, s, rest + rest))


def _special_log(v: Var, value: PrimExpr) -> PrimExpr:
    undefined = v < wide(0.0)
    return choose(
        (undefined, wide(math.nan)), (v == wide(0.0), wide(-math.inf)), (v == wide(math.inf), v), (v != v, v),
        otherwise=value,
    )  # fmt: skip


def _logarithm(scale: float, of_two: tuple[float, float]) -> Callable[[PrimExpr], PrimExpr]:
    """Define ``scale * log(x)``; of_two: its value at 2 as the sum of two floats."""

    def definition(x: PrimExpr) -> PrimExpr:
        let = Lets()
        v = let("v", x)
        n, m = _split(let, v)
        high, low = _log_parts(let, m)
        value = fma(n, wide(of_two[0]), fma(high + low, wide(scale), n * wide(of_two[1])))
        return let.into(_special_log(v, value))

    return definition


log = _logarithm(1.0, _LN2)
log2 = _logarithm(1.0 / math.log(2.0), (1.0, 0.0))
log10 = _logarithm(1.0 / math.log(10.0), _LOG10_2)


def log1p(x: PrimExpr) -> PrimExpr:
    """log(1 + x), with a correction for the rounding of the sum."""
    let = Lets()
    v = let("v", x)
    u = let("u", v + wide(1.0))
    value = log(u) - ((u - wide(1.0)) - v) / u
    plain = (u == wide(math.inf), u), (v == wide(-1.0), wide(-math.inf)), (v == wide(0.0), v)
    return let.into(choose(*plain, otherwise=value))


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``x ** y``, with the logarithm computed as the sum of two floats."""
    let = Lets()
    base, exponent = let("x", x), let("y", y)
    a = let("a", magnitude(base))
    n, m = _split(let, a)
    twice, low = _log_parts(let, m)
    start = let("start", n * wide(_LN2[0]))
    high = let("high", start + twice)
    rest = let("rest", (start - high) + twice + fma(n, wide(_LN2[1]), low))
    product = let("product", exponent * high)
    lost = let("lost", fma(exponent, high, negated(product)) + exponent * rest)
    whole = let("whole", product + lost)
    finite = logical_and(a > wide(0.0), a < wide(math.inf), magnitude(whole) < wide(2000.0))
    raised = Select(finite, exp_of_sum(whole, (product - whole) + lost), exp(exponent * _special_log(a, high)))
    return let.into(with_sign_of_base(base, exponent, raised))


# -- trigonometric functions -------------------------------------------------------------------------------------------


def _by_quadrant(x: PrimExpr, shift: int) -> PrimExpr:
    """sin(x + shift * pi / 2). The reduction of ``x`` is exact enough for ``|x|`` up to 2 ** 45."""
    let = Lets()
    v = let("x", x)
    n = let("n", Call("round", (v * wide(2.0 / math.pi),), F64))
    r = let("r", fma(n, wide(-_HALF_PI[2]), fma(n, wide(-_HALF_PI[1]), fma(n, wide(-_HALF_PI[0]), v))))
    q = let("q", cast(I64, n) + const(shift, I64))
    z = let("z", r * r)
    sine = fma(polynomial(z, _SIN) * z, r, r)
    cosine = fma(polynomial(z, _COS), z * z, fma(z, wide(-0.5), wide(1.0)))
    value = let("value", Select((q & const(1, I64)) == const(1, I64), cosine, sine))
    return let.into(from_bits(bits(value) ^ ((q & const(2, I64)) << const(62, I64))))


def sin(x: PrimExpr) -> PrimExpr:
    """Sine of radians; NaN for infinities."""
    return _by_quadrant(x, 0)


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians; NaN for infinities."""
    return _by_quadrant(x, 1)


def tan(x: PrimExpr) -> PrimExpr:
    """Tangent of radians; NaN for infinities."""
    let = Lets()
    v = let("v", x)
    return let.into(sin(v) / cos(v))


def atan(x: PrimExpr) -> PrimExpr:
    """Arc tangent. Arguments above 1 are inverted, and those above tan(pi / 8) reduced by the addition theorem."""
    let = Lets()
    v = let("v", x)
    a = let("a", magnitude(v))
    inverted, upper = a > wide(1.0), wide(_TAN_EIGHTH)
    b = let("b", Select(inverted, wide(1.0) / a, a))
    turned = let("turned", b > upper)
    t = let("t", Select(turned, (b - wide(1.0)) / (b + wide(1.0)), b))
    z = let("z", t * t)
    series = let("series", polynomial(z, _ATAN) * z * t)
    part = wide(math.pi / 4)
    low = wide(_HALF_PI[1] / 2)
    first = let("first", Select(turned, part + (t + (series + low)), t + series))
    return let.into(copysign(Select(inverted, wide(_HALF_PI[0]) - (first - wide(_HALF_PI[1])), first), v))


def atan2(y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The angle of the point (x, y) in radians, in [-pi, pi]."""
    let = Lets()
    v, u = let("y", y), let("x", x)
    a, b = let("a", magnitude(v)), let("b", magnitude(u))
    both = choose((a == wide(0.0), wide(0.0)), (a == wide(math.inf), wide(1.0)), otherwise=wide(math.nan))
    ratio = Select(a == b, Select(logical_and(a > wide(0.0), a < wide(math.inf)), wide(1.0), both), a / b)
    angle = let("angle", atan(ratio))
    left = bits(u) < const(0, I64)
    return let.into(copysign(Select(left, wide(math.pi) - (angle - wide(2 * _HALF_PI[1])), angle), v))


def asin(x: PrimExpr) -> PrimExpr:
    """Arc sine; NaN outside of [-1, 1]."""
    let = Lets()
    v = let("v", x)
    return let.into(atan(v / Call("sqrt", ((wide(1.0) - v) * (wide(1.0) + v),), F64)))


def acos(x: PrimExpr) -> PrimExpr:
    """Arc cosine; NaN outside of [-1, 1]."""
    let = Lets()
    v = let("v", x)
    return let.into(wide(2.0) * atan(Call("sqrt", ((wide(1.0) - v) / (wide(1.0) + v),), F64)))


# -- hyperbolic functions ----------------------------------------------------------------------------------------------


def sinh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic sine."""
    let = Lets()
    v = let("v", x)
    a, z = let("a", magnitude(v)), let("z", v * v)
    h = let("h", exp(a * wide(0.5)))
    large = copysign(h * (wide(0.5) * h) - wide(0.5) / h / h, v)
    return let.into(Select(a < wide(1.0), fma(polynomial(z, _SINH) * z, v, v), large))


def cosh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic cosine."""
    let = Lets()
    h = let("h", exp(magnitude(x) * wide(0.5)))
    return let.into(h * (wide(0.5) * h) + wide(0.5) / h / h)


def tanh(x: PrimExpr) -> PrimExpr:
    """Hyperbolic tangent."""
    let = Lets()
    v = let("v", x)
    a = let("a", magnitude(v))
    large = copysign(wide(1.0) - wide(2.0) / (exp(a + a) + wide(1.0)), v)
    return let.into(Select(a < wide(0.5), sinh(v) / cosh(v), large))


def asinh(x: PrimExpr) -> PrimExpr:
    """Inverse hyperbolic sine."""
    let = Lets()
    v = let("v", x)
    a = let("a", magnitude(v))
    square = a * a
    small = log1p(a + square / (wide(1.0) + Call("sqrt", (square + wide(1.0),), F64)))
    return let.into(copysign(Select(a > wide(2.0**28), log(a) + wide(math.log(2.0)), small), v))


def acosh(x: PrimExpr) -> PrimExpr:
    """Inverse hyperbolic cosine; NaN below 1."""
    let = Lets()
    v = let("v", x)
    t = let("t", v - wide(1.0))
    small = log1p(t + Call("sqrt", (t * (t + wide(2.0)),), F64))
    large = v > wide(2.0**28)
    return let.into(choose((v < wide(1.0), wide(math.nan)), (large, log(v) + wide(math.log(2.0))), otherwise=small))


def atanh(x: PrimExpr) -> PrimExpr:
    """Inverse hyperbolic tangent; NaN outside of [-1, 1]."""
    let = Lets()
    v = let("v", x)
    a = let("a", magnitude(v))
    return let.into(copysign(wide(0.5) * log1p((a + a) / (wide(1.0) - a)), v))


# -- others ------------------------------------------------------------------------------------------------------------


def erf(x: PrimExpr) -> PrimExpr:
    """``2 / sqrt(pi) * exp(-x * x) * sum(2 ** n * x ** (2 n + 1) / (1 * 3 * ... (2 n + 1)))``, 1 from 6 on.

    Abramowitz and Stegun, 7.1.6: all terms are positive.
    """
    let = Lets()
    v = let("v", x)
    a = let("a", minimum(magnitude(v), wide(6.0)))
    z = let("z", a * a)
    decay = exp_of_sum(negated(z), fma(a, negated(a), z))
    value = wide(2.0 / math.sqrt(math.pi)) * (a * decay * polynomial(z, _ERF))
    return let.into(
        choose((v != v, v), (magnitude(v) > wide(6.0), copysign(wide(1.0), v)), otherwise=copysign(value, v))
    )


def hypot(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """``sqrt(x * x + y * y)`` without overflow of the squares."""
    let = Lets()
    a, b = let("a", magnitude(x)), let("b", magnitude(y))
    high, low = let("high", maximum(a, b)), let("low", minimum(a, b))
    ratio = let("ratio", Select(low == high, Select(high == wide(0.0), wide(0.0), wide(1.0)), low / high))
    value = high * Call("sqrt", (fma(ratio, ratio, wide(1.0)),), F64)
    infinite = (a == wide(math.inf), a), (b == wide(math.inf), b)
    return let.into(choose(*infinite, (a != a, a), (b != b, b), otherwise=value))


def remainder(x: PrimExpr, y: PrimExpr, steps: int) -> PrimExpr:
    """``x - trunc(x / y) * y`` exactly, with the sign of x, for ``|x / y|`` below ``2 ** (50 * steps)``.

    y must not be subnormal. Each step subtracts a multiple of y that has 51 bits: the difference is exact.
    """
    let = Lets()
    u, v = let("x", x), let("y", y)
    d = let("d", magnitude(v))
    r = let("r", magnitude(u))
    for _ in range(steps):
        distance = let("distance", maximum(_exponent(r) - _exponent(d) - const(50, I64), const(0, I64)))
        half = let("half", distance >> const(1, I64))
        multiple = let("multiple", d * _power_of_two(half) * _power_of_two(distance - half))
        factor = Call("trunc", (r / multiple,), F64)
        rest = let("rest", fma(negated(factor), multiple, r))
        r = let("r", Select(rest < wide(0.0), rest + multiple, rest))
    undefined = (magnitude(u) == wide(math.inf), wide(math.nan)), (v == wide(0.0), wide(math.nan)), (v != v, v)
    return let.into(choose(*undefined, (d == wide(math.inf), u), otherwise=copysign(r, u)))


def _exponent(x: PrimExpr) -> PrimExpr:
    return bits(x) >> const(52, I64)


def fmod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The exact remainder of a division, with the sign of x; y must not be subnormal."""
    return remainder(x, y, 42)


_NAMED: tuple[Callable[..., PrimExpr], ...] = (
    exp, exp2, exp10, log1p, sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh, asinh, acosh, atanh, erf,
    hypot, fmod,
)  # fmt: skip

ARITHMETIC: dict[str, Callable[..., PrimExpr]] = {
    **{f.__name__: f for f in _NAMED},
    "log": log,
    "log2": log2,
    "log10": log10,
    "pow": power,
}
"""float64 function name -> expression, for the functions that are calls of the C library elsewhere."""
