"""Calls of scalar functions: LLVM intrinsics if the CPU has an instruction, else arithmetic or the C library."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir import dtype as dt
from . import llvm_ir as ll
from .arithmetic import CodegenError, absolute, integer_power
from .conversions import convert
from .values import F64, constant, i32, intrinsic, lanes_of, type_suffix, value_type, vector_of

Capabilities = Collection[str]

_INSTRUCTIONS = {"sqrt": "sqrt", "abs": "fabs", "fabs": "fabs", "copysign": "copysign"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "nearbyint": "rint"}
C_LIBRARY = frozenset(
    """acos acosh asin asinh atan atan2 atanh cos cosh erf exp exp2 fmod hypot log log10 log1p log2 pow sin sinh tan
    tanh""".split()
)


def call(
    b: ll.IRBuilder, op: str, args: Sequence[ll.Value], operand: str, result: str, capabilities: Capabilities
) -> ll.Value:
    """Emit ``op`` on values of dtype ``operand`` and equal lane counts. Raises CodegenError for unknown functions."""
    args = list(args)
    if op == "likely":
        return args[0]
    if op == "reinterpret":
        return b.bitcast(args[0], vector_of(value_type(result), lanes_of(args[0])))
    if dt.is_float(operand):
        found = _float_function(b, op, args, operand, capabilities)
    else:
        found = _int_function(b, op, args, operand)
    if found is None:
        raise CodegenError(f"no code for the function {op!r} of {operand}")
    return found


def _int_function(b: ll.IRBuilder, op: str, args: list[ll.Value], dtype: str) -> ll.Value | None:
    if op == "abs":
        return absolute(b, args[0], dtype)
    if op == "pow":
        return integer_power(b, args[0], args[1], dtype)
    if op == "popcount":
        return _overloaded(b, "ctpop", args)
    return None


def _float_function(
    b: ll.IRBuilder, op: str, args: list[ll.Value], dtype: str, capabilities: Capabilities
) -> ll.Value | None:
    if op in _INSTRUCTIONS:
        return _overloaded(b, _INSTRUCTIONS[op], args)
    if op in _ROUNDING:
        if "round" in capabilities:
            return _overloaded(b, _ROUNDING[op], args)
        return _round(b, op, args[0], dtype)
    if op == "fma":
        return _fma(b, args, dtype, capabilities)
    if op in ("isnan", "isinf", "isfinite"):
        return _classify(b, op, args[0], dtype)
    if op in C_LIBRARY and dtype == "float64":
        return _per_lane(b, op, args)
    return None


def _overloaded(b: ll.IRBuilder, name: str, args: list[ll.Value]) -> ll.Value:
    return intrinsic(b, f"llvm.{name}.{type_suffix(args[0].type)}", args, args[0].type)


def _fma(b: ll.IRBuilder, args: list[ll.Value], dtype: str, capabilities: Capabilities) -> ll.Value:
    if "fma" in capabilities:
        return _overloaded(b, "fma", args)
    if dtype == "float64":
        return _per_lane(b, "fma", args)
    x, y, z = (convert(b, a, "float32", "float64") for a in args)
    return convert(b, b.fadd(b.fmul(x, y), z), "float64", "float32")


def _per_lane(b: ll.IRBuilder, name: str, args: list[ll.Value]) -> ll.Value:
    """Call a function of the C library for each lane."""
    lanes = lanes_of(args[0])
    if lanes == 1:
        return intrinsic(b, name, args, F64)
    result: ll.Value = ll.Constant(args[0].type, ll.Undefined)
    for lane in range(lanes):
        at = i32(lane)
        value = intrinsic(b, name, [b.extract_element(a, at) for a in args], F64)
        result = b.insert_element(result, value, at)
    return result


def _classify(b: ll.IRBuilder, op: str, value: ll.Value, dtype: str) -> ll.Value:
    if op == "isnan":
        return b.fcmp_unordered("uno", value, value)
    infinity = constant(value_type(dtype), float("inf"), lanes_of(value))
    return b.fcmp_ordered("==" if op == "isinf" else "<", _overloaded(b, "fabs", [value]), infinity)


def _round(b: ll.IRBuilder, op: str, value: ll.Value, dtype: str) -> ll.Value:
    """Round by adding and subtracting 2 ** 23 or 2 ** 52, for CPUs without a rounding instruction."""
    element, lanes = value_type(dtype), lanes_of(value)
    limit = constant(element, 2.0 ** (23 if dtype == "float32" else 52), lanes)
    magnitude = _overloaded(b, "fabs", [value])
    rounded = _overloaded(b, "copysign", [b.fsub(b.fadd(magnitude, limit), limit), value])
    one, zero = constant(element, 1.0, lanes), constant(element, 0.0, lanes)
    if op == "floor":
        rounded = b.fsub(rounded, b.select(b.fcmp_ordered(">", rounded, value), one, zero))
    elif op == "ceil":
        rounded = b.fadd(rounded, b.select(b.fcmp_ordered("<", rounded, value), one, zero))
    elif op == "trunc":
        size = _overloaded(b, "fabs", [rounded])
        rounded = b.fsub(size, b.select(b.fcmp_ordered(">", size, magnitude), one, zero))
    rounded = _overloaded(b, "copysign", [rounded, value])
    return b.select(b.fcmp_ordered("<", magnitude, limit), rounded, value)
