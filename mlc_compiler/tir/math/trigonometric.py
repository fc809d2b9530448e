"""Sine and cosine of radians over the whole range of float32."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.expr import Call, Cast, PrimExpr, Select, cast, const
from .build import F32, F64, I32, I64, ROUNDER, Lets, bits, f32, fma, from_bits, magnitude, nearest, polynomial, wide

_SIN = (2.83273926e-06, -1.98530732e-04, 8.33337940e-03, -1.66666672e-01)
_COS = (-2.88808877e-07, 2.48220204e-05, -1.38889800e-03, 4.16666679e-02)
_HALF_PI_HIGH = 1.5707963267341256  # 33 significant bits: products with integers below 2 ** 20 are exact
_HALF_PI_LOW = 6.077100506506192e-11
_LARGE = 2.0**20

# 2 / pi in pieces of 24 bits: the product of a piece and a float32 is exact in float64.
_TWO_OVER_PI = (0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041)
_SIGN_BIT = -(1 << 31)


def sin(x: PrimExpr) -> PrimExpr:
    """Sine of radians; NaN for infinities."""
    return by_quadrant(x, 0, reduce)


def cos(x: PrimExpr) -> PrimExpr:
    """Cosine of radians; NaN for infinities."""
    return by_quadrant(x, 1, reduce)


def reduce(a: PrimExpr) -> PrimExpr:
    """Range reduction of a nonnegative float32: the reduced argument and the quadrant, packed by ``pack``."""
    let = Lets()
    v = let("a", wide(a))
    return let.into(Call("if_then_else", (v > wide(_LARGE), _reduce_large(v), _reduce(v)), I64))


def by_quadrant(x: PrimExpr, shift: int, reduce: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    """sin(|x| + shift * pi / 2), with the sign of x for shift 0; evaluates one of two polynomials by quadrant."""
    let = Lets()
    v = let("x", x)
    reduced = let("reduced", reduce(magnitude(v)))
    r = let("r", from_bits(Cast(I32, reduced)))
    q = let("q", Cast(I32, reduced >> const(32, I64)) + const(shift, I32))
    z = let("z", r * r)
    sine = fma(polynomial(z, _SIN) * z, r, r)
    cosine = fma(polynomial(z, _COS), z * z, fma(z, f32(-0.5), f32(1.0)))
    value = let("value", Select((q & const(1, I32)) == const(1, I32), cosine, sine))
    sign = q << const(30, I32)
    sign = sign if shift else sign ^ bits(v)
    return let.into(from_bits(bits(value) ^ (sign & const(_SIGN_BIT, I32))))


def pack(r: PrimExpr, q: PrimExpr) -> PrimExpr:
    """The reduced argument (as float32, lower half) and the number of quarter turns (upper half) in one int64."""
    low = Cast(I64, bits(cast(F32, r))) & const(0xFFFFFFFF, I64)
    return (q << const(32, I64)) | low


def _reduce(a: PrimExpr) -> PrimExpr:
    """Range reduction by subtracting the nearest multiple of pi / 2, given in two parts (Cody and Waite)."""
    let = Lets()
    n, k = nearest(let, a * wide(2 / math.pi) + wide(ROUNDER[F64]))
    r = (a - n * wide(_HALF_PI_HIGH)) - n * wide(_HALF_PI_LOW)
    return let.into(pack(r, k))


def _reduce_large(a: PrimExpr) -> PrimExpr:
    """Range reduction: multiply by enough bits of 2 / pi and keep the fraction (Payne and Hanek).

    Products and their fractions are exact; sums are exact until the remaining pieces are too small to cancel them.
    """
    let = Lets()
    fraction: PrimExpr = wide(0.0)
    turns: PrimExpr = wide(0.0)
    for i, piece in enumerate(_TWO_OVER_PI):
        product = let("product", a * wide(piece * 2.0 ** (-24 * (i + 1))))
        whole = let("whole", _round(product))
        total = let("total", fraction + (product - whole))
        carry = let("carry", _round(total))
        fraction = let("fraction", total - carry)
        turns = let("turns", turns + carry + (whole - wide(4.0) * _round(whole * wide(0.25))))
    _, q = nearest(let, turns + wide(ROUNDER[F64]))
    return let.into(pack(fraction * wide(math.pi / 2), q))


def _round(x: PrimExpr) -> PrimExpr:
    return Call("round", (x,), F64)
