"""Elementary functions as arithmetic that vectorizes: range reduction and polynomials.

``RULES`` are for float32. Their error is at most 2 ulp over the whole range; zeros, infinities and NaN follow the C
standard; they use only arithmetic, comparisons and bit operations.

``benchmarks/fit_polynomials.py`` computes the coefficients. ``tests/compiler/codegen/accuracy.py`` checks all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.expr import Call, PrimExpr
from .build import F32, F64, from_wide, negated, wide
from .error_function import erf
from .exponential import exp, exp2, exp10, sigmoid, tanh
from .logarithm import log, log1p, log2, log10, power
from .trigonometric import cos, sin

Rule = Callable[..., PrimExpr]

Rules = Mapping[str, Mapping[str, Rule]]
"""dtype -> function name -> expression that replaces its call."""


def rsqrt(x: PrimExpr) -> PrimExpr:
    """``1 / sqrt(x)``"""
    return from_wide(wide(1.0) / Call("sqrt", (wide(x),), F64))


def through_wide(name: str) -> Rule:
    """Rule that computes the float32 function by the float64 function of the same name."""
    return lambda *args: from_wide(Call(name, tuple(wide(a) for a in args), F64))


POLYNOMIALS: dict[str, Rule] = {
    "exp": exp,
    "exp2": exp2,
    "exp10": exp10,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "erf": erf,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "pow": power,
    "sin": sin,
    "cos": cos,
    "rsqrt": rsqrt,
}

LIBRARY = "acos acosh asin asinh atan atan2 atanh cosh fmod hypot sinh tan".split()

RULES: dict[str, Rule] = {**POLYNOMIALS, **{name: through_wide(name) for name in LIBRARY}}
"""float32 function name -> expression that replaces its call."""

WIDE_RULES: dict[str, Rule] = {
    "exp10": lambda x: Call("pow", (wide(10.0), x), F64),
    "sigmoid": lambda x: wide(1.0) / (wide(1.0) + Call("exp", (negated(x),), F64)),
    "rsqrt": lambda x: wide(1.0) / Call("sqrt", (x,), F64),
}
"""float64 function name -> expression, for the functions that the C library lacks."""

ON_CPU: Rules = {F32: RULES, F64: WIDE_RULES}
"""Rules for CPUs: functions that vectorize as arithmetic, the others as calls of the C library."""

__all__ = ["F32", "F64", "LIBRARY", "ON_CPU", "POLYNOMIALS", "RULES", "WIDE_RULES", "Rule", "Rules", "through_wide"]
