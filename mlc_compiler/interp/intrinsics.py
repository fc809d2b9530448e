"""Scalar functions by name. Each is computed in float64 and rounded once to its dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..ir.expr import Call
from .errors import InterpreterError
from .scalars import float_type, wrapper

Function = Callable[..., Any]


def _sigmoid(x: np.float64) -> np.float64:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: np.float64) -> float:
    return math.erf(x)


def _rsqrt(x: np.float64) -> np.float64:
    return 1.0 / np.sqrt(x)


FLOAT_FUNCTIONS: dict[str, Function] = {
    **{name: getattr(np, name) for name in "exp exp2 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh".split()},
    "exp10": partial(np.power, 10.0),
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "abs": np.abs,
    "fabs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "round": np.rint,
    "nearbyint": np.rint,
    "erf": _erf,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "pow": np.power,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "hypot": np.hypot,
    "ldexp": lambda x, e: np.ldexp(x, int(e)),
    "fma": lambda a, b, c: a * b + c,  # the product of two float32 is exact in float64
}
_INT_FUNCTIONS: dict[str, Function] = {
    "abs": abs,
    "pow": pow,
    "popcount": lambda x: int(x & 0xFFFFFFFFFFFFFFFF).bit_count() if x >= 0 else int(x % 2**64).bit_count(),
    "lookup_bytes": lambda x, *words: _lookup_bytes(x, *words),
}


def _lookup_bytes(x: int, *words: int) -> int:
    """Semantics of ``codegen/byte_lookup.py``: look up each byte of x in the table of bytes in ``words``."""
    table = b"".join(int(word).to_bytes(4, "little") for word in words)
    return int.from_bytes(bytes(table[byte % len(table)] for byte in int(x).to_bytes(4, "little")), "little")


_PREDICATES: dict[str, Function] = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}
_REGISTERED: dict[str, Callable[[Call], Function]] = {}


def register_intrinsic(name: str, implementation: Callable[[Call], Function]) -> None:
    """Register the semantics of ``name``: ``implementation(call)`` returns a Python function of the argument values.

    Values are ints, bools and numpy scalars of the arguments' dtypes; the result must be one of ``call.dtype``.
    """
    _REGISTERED[name] = implementation


def function_of(call: Call) -> Function:
    """The Python function that implements a call. Raises InterpreterError for an unknown name."""
    if call.op in _REGISTERED:
        return _REGISTERED[call.op](call)
    if call.op == "reinterpret":
        return _reinterpret(call.args[0].dtype, call.dtype)
    if call.op == "likely":
        return lambda value: value
    if call.op in _PREDICATES:
        predicate = _PREDICATES[call.op]
        return lambda value: predicate(float(value))
    if dt.is_float(call.dtype) and call.op in FLOAT_FUNCTIONS:
        return _rounded(FLOAT_FUNCTIONS[call.op], call.dtype)
    if dt.is_int(call.dtype) and call.op in _INT_FUNCTIONS:
        exact, wrap = _INT_FUNCTIONS[call.op], wrapper(call.dtype)
        return lambda *args: wrap(exact(*args))
    raise InterpreterError(
        f"the function {call.op!r} of {call.dtype} has no meaning here; register_intrinsic gives it one"
    )


def _rounded(exact: Function, dtype: str) -> Function:
    make = float_type(dtype)
    return lambda *args: make(float(exact(*map(np.float64, args))))


def _reinterpret(source: str, target: str) -> Function:
    """Return a function that reinterprets the bits of a value as another dtype."""
    from_type, to_type = dt.to_numpy(source), dt.to_numpy(target)

    def convert(value: Any) -> Any:
        result = np.array(value, from_type).view(to_type)[()]
        return result if dt.is_float(target) else int(result)

    return convert
