"""The functions ``T.<name>(…)`` that expressions can call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, Call, PrimExpr, Select, StringImm, max_value, min_value
from ..tir.threads import STORAGE_SYNC, storage_sync
from . import calls
from .arithmetic import binary, common_type, convert, is_python, logical_not, to_expr, truncating_division

DTYPES = (
    "bool int4 int8 int16 int32 int64 uint4 uint8 uint16 uint32 uint64 int2 uint2 "
    "float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2"
).split()


def _argument(value: Any) -> PrimExpr:
    return StringImm(value) if isinstance(value, str) else to_expr(value)


def _intrinsic_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a function, got a {type(name).__name__}")
    return name.removeprefix("tirx.").removeprefix("tir.")


def _call_intrin(dtype: str, op: str, *args: Any) -> PrimExpr:
    return Call(_intrinsic_name(op), tuple(map(_argument, args)), dtype)


def _named(op: str, *args: Any) -> PrimExpr:
    like = next((a.dtype for a in args if isinstance(a, PrimExpr)), "float32")
    exprs = tuple(to_expr(a, like) for a in args)
    dtype = calls.result_dtype(op, tuple(e.dtype for e in exprs))
    if dtype is None:
        raise TypeError(f"T.{op} does not take ({', '.join(e.dtype for e in exprs)})")
    return Call(op, exprs, dtype)


def _if_then_else(condition: Any, true_value: Any, false_value: Any) -> Any:
    if is_python(condition):
        return true_value if condition else false_value
    a, b = common_type(true_value, false_value)
    return Call(calls.IF_THEN_ELSE, (to_expr(condition), a, b), a.dtype)


def _select(condition: Any, true_value: Any, false_value: Any) -> PrimExpr:
    return Select(to_expr(condition), *common_type(true_value, false_value))


def _truncated_remainder(a: Any, b: Any) -> PrimExpr:
    x, y = common_type(a, b)
    return BinaryOp("-", x, BinaryOp("*", BinaryOp("/", x, y), y))


def _ceildiv(a: Any, b: Any) -> Any:
    return binary("//", binary("+", a, binary("-", b, 1)), b)


def _abs(value: Any) -> Any:
    if is_python(value):
        return abs(value)
    expr = to_expr(value)
    return Call("abs", (expr,), expr.dtype)


def _chain(op: str, *terms: Any) -> Any:
    result = terms[0]
    for term in terms[1:]:
        result = binary(op, result, term)
    return result


_OPERATORS = {
    "min": "min",
    "max": "max",
    "add": "+",
    "Add": "+",
    "subtract": "-",
    "Sub": "-",
    "multiply": "*",
    "Mul": "*",
    "floordiv": "//",
    "FloorDiv": "//",
    "floormod": "%",
    "FloorMod": "%",
    "shift_left": "<<",
    "shift_right": ">>",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "And": "and",
    "Or": "or",
    "EQ": "==",
    "NE": "!=",
    "LT": "<",
    "LE": "<=",
    "GT": ">",
    "GE": ">=",
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(binary, op) for name, op in _OPERATORS.items()},
    **{name: partial(_named, name) for name in calls.NAMED},
    **{name: partial(convert, name) for name in DTYPES},
    "Min": partial(binary, "min"),
    "Max": partial(binary, "max"),
    "all": partial(_chain, "and"),
    "any": partial(_chain, "or"),
    "Not": logical_not,
    "Div": truncating_division,
    "truncdiv": truncating_division,
    "Mod": _truncated_remainder,
    "truncmod": _truncated_remainder,
    "ceildiv": _ceildiv,
    "abs": _abs,
    "Cast": convert,
    "cast": lambda value, dtype: convert(dtype, value),
    "reinterpret": lambda dtype, value: Call("reinterpret", (to_expr(value),), dtype),
    "Select": _select,
    "if_then_else": _if_then_else,
    "call_intrin": _call_intrin,
    "call_extern": _call_intrin,
    "call_pure_extern": _call_intrin,
    "min_value": lambda dtype: _limit(dtype, low=True),
    "max_value": lambda dtype: _limit(dtype, low=False),
    "infinity": lambda dtype: convert(dtype, float("inf")),
    "StringImm": StringImm,
    STORAGE_SYNC: lambda scope: storage_sync(scope).value,
}


def _limit(dtype: str, low: bool) -> PrimExpr:
    """The minimum or maximum finite value of a dtype."""
    if dt.is_float(dtype):
        finfo = ml_dtypes.finfo(dt.to_numpy(dtype))
        return convert(dtype, float(finfo.min if low else finfo.max))
    return min_value(dtype) if low else max_value(dtype)
