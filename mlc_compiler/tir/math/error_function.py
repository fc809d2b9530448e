"""The error function."""

from __future__ import annotations

from ...ir.expr import PrimExpr, Select, minimum
from .build import Lets, copysign, f32, fma, magnitude, negated, polynomial
from .exponential import exp

_ERF = (
    8.00278212e-05, -8.05080461e-04, 5.19246049e-03, -2.68557407e-02, 1.12836257e-01, -3.76126289e-01, 1.28379166e-01,
)  # fmt: skip
_LOG_ERFC = (
    -5.29465024e-06, 4.99145426e-05, 2.75543589e-05, -2.86941673e-03,
    2.25760434e-02, -1.05169855e-01, -6.35672987e-01, -1.28541470e-01,
)  # fmt: skip


def erf(x: PrimExpr) -> PrimExpr:
    """Error function: a polynomial where ``|x| < 0.92``, else ``1 - exp(p(|x|))`` with the sign of x; 1 above 3.92."""
    let = Lets()
    v = let("v", x)
    a = let("a", minimum(f32(4.0), magnitude(v)))
    large = f32(1.0) - exp(fma(polynomial(a, _LOG_ERFC), a, negated(a)))
    small = fma(polynomial(v * v, _ERF), v, v)
    return let.into(Select(a < f32(0.92), small, copysign(large, v)))
