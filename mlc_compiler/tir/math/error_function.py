"""The error function."""

from __future__ import annotations

from ...ir.expr import PrimExpr, Select, const, minimum
from .build import I32, ROUNDER, Lets, bits, copysign, f32, fma, from_bits, magnitude, polynomial

_ERF = (-5.81123226e-04, 4.95583285e-03, -2.67394762e-02, 1.12810135e-01, -3.76124114e-01, 1.28379136e-01)
_LOG2_ERFC = (3.09599593e-04, -4.64547472e-03, 3.30465138e-02, -1.51896968e-01, -9.17120218e-01, -1.62811017e00)
_MINUS_EXP2 = (-1.34158484e-03, -9.68068838e-03, -5.55027686e-02, -2.40219846e-01, -6.93147242e-01, -1.00000012e00)
_BIASED = ROUNDER["float32"] + 127  # plus a number: its nearest integer, as the exponent of a power, in the low bits


def erf(x: PrimExpr) -> PrimExpr:
    """Error function: a polynomial where ``|x| < 0.92``, else ``1 - 2 ** p(|x|)`` with the sign of x; 1 above 3.92.

    The power is at most 0.2, so that its error counts for a fifth of it in the result.
    """
    let = Lets()
    v = let("v", x)
    a = let("a", minimum(f32(4.0), magnitude(v)))
    exponent = let("exponent", polynomial(a, _LOG2_ERFC) * a)
    biased = let("biased", exponent + f32(_BIASED))
    fraction = let("fraction", exponent - (biased - f32(_BIASED)))
    power = from_bits(bits(biased) << const(23, I32))
    large = fma(polynomial(fraction, _MINUS_EXP2), power, f32(1.0))
    small = fma(polynomial(v * v, _ERF), v, v)
    return let.into(Select(a < f32(0.92), small, copysign(large, v)))
