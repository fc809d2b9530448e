"""Scalar functions printed as ``T.name(…)``; all others are printed as ``T.call_intrin(dtype, name, …)``."""

from __future__ import annotations

UNARY = frozenset(
    """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp10 exp2 fabs floor log log10 log1p log2 nearbyint
    popcount clz round rsqrt sigmoid sin sinh sqrt tan tanh trunc likely""".split()
)
BINARY = frozenset({"atan2", "copysign", "fmod", "hypot", "ldexp", "nextafter", "pow"})
PREDICATES = frozenset({"isfinite", "isinf", "isnan"})
FMA = "fma"
IF_THEN_ELSE = "if_then_else"
NAMED = UNARY | BINARY | PREDICATES | {FMA, IF_THEN_ELSE}


def result_dtype(op: str, arg_dtypes: tuple[str, ...]) -> str | None:
    """The dtype that ``T.op(args)`` has when parsed; None when the call needs the long form ``T.call_intrin``."""
    arity = 1 if op in UNARY | PREDICATES else 2 if op in BINARY else 3 if op in NAMED else 0
    if not arity or len(arg_dtypes) != arity:
        return None
    if op == IF_THEN_ELSE:
        return arg_dtypes[1] if arg_dtypes[0] == "bool" and arg_dtypes[1] == arg_dtypes[2] else None
    if len(set(arg_dtypes)) != 1:
        return None
    return "bool" if op in PREDICATES else arg_dtypes[0]
