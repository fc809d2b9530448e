"""Building blocks for the definitions of elementary functions."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Call, Cast, FloatImm, Let, PrimExpr, Select, Var, cast, const, maximum, minimum

F32, F64, I32, I64 = "float32", "float64", "int32", "int64"


class Lets:
    """Let-bound values: ``r = let("r", …)`` is evaluated once; ``let.into(body)`` wraps ``body`` in all bindings."""

    def __init__(self) -> None:
        self._bound: list[tuple[Var, PrimExpr]] = []

    def __call__(self, name: str, value: PrimExpr) -> Var:
        var = Var(name, value.dtype)
        self._bound.append((var, value))
        return var

    def into(self, body: PrimExpr) -> PrimExpr:
        for var, value in reversed(self._bound):
            body = Let(var, value, body)
        return body


def f32(value: float) -> FloatImm:
    return FloatImm(value, F32)


def wide(value: PrimExpr | float) -> PrimExpr:
    """Convert a number or expression to float64."""
    return cast(F64, value) if isinstance(value, PrimExpr) else FloatImm(value, F64)


def from_wide(value: PrimExpr) -> PrimExpr:
    return Cast(F32, value)


def fma(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    """``a * b + c`` rounded once."""
    return Call("fma", (a, b, c), a.dtype)


def polynomial(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """Evaluate a polynomial by Horner's scheme, highest power first; float32 uses ``fma``, float64 multiply and add."""
    result: PrimExpr = FloatImm(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        c_expr = FloatImm(c, x.dtype)
        result = fma(result, x, c_expr) if x.dtype == F32 else result * x + c_expr
    return result


def magnitude(x: PrimExpr) -> PrimExpr:
    return Call("abs", (x,), x.dtype)


def copysign(value: PrimExpr, sign: PrimExpr) -> PrimExpr:
    return Call("copysign", (value, sign), value.dtype)


def negated(x: PrimExpr) -> PrimExpr:
    return x * FloatImm(-1.0, x.dtype)


def clamped(x: PrimExpr, low: float, high: float) -> PrimExpr:
    """``x`` clamped to an interval; NaN is propagated."""
    return maximum(FloatImm(low, x.dtype), minimum(FloatImm(high, x.dtype), x))


def bits(x: PrimExpr) -> PrimExpr:
    """Reinterpret a float as a signed integer of the same width."""
    return Call("reinterpret", (x,), I32 if x.dtype == F32 else I64)


def from_bits(x: PrimExpr) -> PrimExpr:
    """Reinterpret a signed integer as a float of the same width."""
    return Call("reinterpret", (x,), F32 if x.dtype == I32 else F64)


def power_of_two(n: PrimExpr) -> PrimExpr:
    """``2 ** n`` in float32, for an int32 ``n`` in [-126, 127]."""
    return from_bits((n + const(127, I32)) << const(23, I32))


# Adding this to a small number rounds it to an integer, in the low bits of the sum's mantissa.
ROUNDER = {F32: 1.5 * 2**23, F64: 1.5 * 2**52}
_ROUNDER_BITS = {F32: 0x4B400000, F64: 0x4338000000000000}


def nearest(let: Lets, scaled: PrimExpr) -> tuple[Var, Var]:
    """``scaled`` rounded to an integer, as a float and as an integer of its width; its magnitude must be below 2 ** 21.

    The caller must have added ``ROUNDER`` to ``scaled``.
    """
    shifted = let("shifted", scaled)
    n = let("n", shifted - FloatImm(ROUNDER[shifted.dtype], shifted.dtype))
    return n, let("k", bits(shifted) - const(_ROUNDER_BITS[shifted.dtype], I32 if shifted.dtype == F32 else I64))


def choose(*cases: tuple[PrimExpr, PrimExpr], otherwise: PrimExpr) -> PrimExpr:
    """The value of the first condition that holds, or ``otherwise``."""
    result = otherwise
    for condition, value in reversed(cases):
        result = Select(condition, value, result)
    return result
