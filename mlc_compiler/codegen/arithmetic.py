"""Operators on values of one dtype. Integers wrap around; division and shifts are defined for all operands."""

from __future__ import annotations

from mlc_errors import MLCError

from ..ir import dtype as dt
from . import llvm_ir as ll
from .conversions import convert, is_narrow
from .values import constant, lanes_of, width_of


class CodegenError(MLCError):
    """An expression or statement that code generation does not support on this target."""


COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul", "&": "and_", "|": "or_", "^": "xor"}


def operate(
    b: ll.IRBuilder,
    op: str,
    a: ll.Value,
    d: ll.Value,
    dtype: str,
    flags: tuple[str, ...] = (),
    f16c: bool = True,
) -> ll.Value:
    """Emit ``a op d`` for operands of the same dtype and lane count. flags: LLVM's fast-math flags."""
    if is_narrow(dtype) and op not in ("min", "max"):
        a, d = (convert(b, x, dtype, "float32", f16c) for x in (a, d))
        result = operate(b, op, a, d, "float32")
        return result if op in COMPARISONS else convert(b, result, "float32", dtype, f16c)
    if op in COMPARISONS:
        return _compare(b, op, a, d, dtype)
    if op in ("and", "or"):
        return b.and_(a, d) if op == "and" else b.or_(a, d)
    if op in ("min", "max"):
        return b.select(operate(b, "<" if op == "min" else ">", a, d, dtype, f16c=f16c), a, d)
    if dt.is_float(dtype):
        if op not in _FLOAT_OPS:
            raise CodegenError(f"operator {op} is not defined for {dtype}")
        return getattr(b, _FLOAT_OPS[op])(a, d, flags=flags)
    if op in _INT_OPS:
        return getattr(b, _INT_OPS[op])(a, d)
    if op in ("<<", ">>"):
        return _shift(b, op, a, d, dt.is_signed(dtype))
    return _division(b, op, a, d, dtype)


def _compare(b: ll.IRBuilder, op: str, a: ll.Value, d: ll.Value, dtype: str) -> ll.Value:
    if dt.is_float(dtype):
        return b.fcmp_unordered(op, a, d) if op == "!=" else b.fcmp_ordered(op, a, d)
    return (b.icmp_signed if dt.is_signed(dtype) else b.icmp_unsigned)(op, a, d)


def _like(value: ll.Value, number: int) -> ll.Constant:
    element = value.type.element if isinstance(value.type, ll.VectorType) else value.type
    return constant(element, number, lanes_of(value))


def _shift(b: ll.IRBuilder, op: str, a: ll.Value, d: ll.Value, signed: bool) -> ll.Value:
    """Emit a shift; by the bit width or more it gives 0, or the sign for ``>>`` of signed integers."""
    width = width_of(a.type)
    known = uniform_constant(d)
    inside = None if known is not None and 0 <= known < width else b.icmp_unsigned("<", d, _like(d, width))
    if op == ">>" and signed:
        return b.ashr(a, d if inside is None else b.select(inside, d, _like(d, width - 1)))
    shifted = (b.shl if op == "<<" else b.lshr)(a, d)
    return shifted if inside is None else b.select(inside, shifted, _like(a, 0))


def _division(b: ll.IRBuilder, op: str, a: ll.Value, d: ll.Value, dtype: str) -> ll.Value:
    """Emit an integer division. ``//`` and ``%`` round towards minus infinity, ``/`` towards zero; x / 0 is 0."""
    known = uniform_constant(d)
    if known == 0:
        return _like(a, 0)
    if known is not None and known > 0 and known & (known - 1) == 0 and op != "/":
        if op == "%":
            return b.and_(a, _like(a, known - 1))
        return (b.ashr if dt.is_signed(dtype) else b.lshr)(a, _like(a, known.bit_length() - 1))
    divide = _signed_division if dt.is_signed(dtype) else _unsigned_division
    if known is not None and known != -1:
        return divide(b, op, a, d)
    zero = _like(a, 0)
    by_zero = b.icmp_unsigned("==", d, zero)
    if not dt.is_signed(dtype):
        return b.select(by_zero, zero, divide(b, op, a, b.select(by_zero, _like(d, 1), d)))
    by_minus_one = b.icmp_unsigned("==", d, _like(d, -1))
    result = divide(b, op, a, b.select(b.or_(by_zero, by_minus_one), _like(d, 1), d))
    if op != "%":
        result = b.select(by_minus_one, b.sub(zero, a), result)
    return b.select(by_zero, zero, result)


def _unsigned_division(b: ll.IRBuilder, op: str, a: ll.Value, d: ll.Value) -> ll.Value:
    return b.urem(a, d) if op == "%" else b.udiv(a, d)


def _signed_division(b: ll.IRBuilder, op: str, a: ll.Value, d: ll.Value) -> ll.Value:
    quotient = b.sdiv(a, d)
    if op == "/":
        return quotient
    remainder, zero = b.srem(a, d), _like(a, 0)
    differ = b.icmp_signed("<", b.xor(remainder, d), zero)
    adjust = b.and_(b.icmp_signed("!=", remainder, zero), differ)
    if op == "//":
        return b.sub(quotient, b.zext(adjust, quotient.type))
    return b.add(remainder, b.select(adjust, d, zero))


def uniform_constant(value: ll.Value) -> int | None:
    """The value of an integer constant that is the same in every lane; None for other values."""
    if not isinstance(value, ll.Constant):
        return None
    number = value.constant
    if isinstance(number, list | tuple):
        members = {m.constant if isinstance(m, ll.Constant) else m for m in number}
        number = members.pop() if len(members) == 1 else None
    return number if isinstance(number, int) else None


def absolute(b: ll.IRBuilder, value: ll.Value, dtype: str) -> ll.Value:
    """The absolute value of an integer; the minimum wraps to itself."""
    if not dt.is_signed(dtype):
        return value
    negative = b.icmp_signed("<", value, _like(value, 0))
    return b.select(negative, b.sub(_like(value, 0), value), value)


def integer_power(b: ll.IRBuilder, base: ll.Value, exponent: ll.Value, dtype: str) -> ll.Value:
    """``base ** exponent`` with wraparound, by squaring; 0 for a negative exponent."""
    zero, one = _like(base, 0), _like(base, 1)
    result: ll.Value = one
    for bit in range(dt.bits(dtype)):
        is_set = b.icmp_unsigned("!=", b.and_(b.lshr(exponent, _like(exponent, bit)), one), zero)
        result = b.select(is_set, b.mul(result, base), result)
        base = b.mul(base, base)
    if not dt.is_signed(dtype):
        return result
    return b.select(b.icmp_signed("<", exponent, zero), zero, result)
