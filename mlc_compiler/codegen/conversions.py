"""Conversions between dtypes, for scalars and SIMD vectors alike.

float16, bfloat16 and the 8-bit floats are held as integers of their width and computed in float32. Float to float
rounds to nearest, ties to even; overflow gives infinity, or NaN for formats without infinity. Float to integer
truncates and saturates, NaN gives 0. Integer to integer keeps the low bits. float64 is rounded once to float16,
and through float32 to bfloat16 and the 8-bit floats, as ml_dtypes does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ir import dtype as dt
from . import llvm_ir as ll
from .values import (
    F16,
    F32,
    F64,
    I16,
    I32,
    constant,
    intrinsic,
    lanes_of,
    type_suffix,
    value_type,
    vector_of,
    width_of,
)


@dataclass(frozen=True)
class NarrowFloat:
    """A format of a sign bit, ``exponent`` bits and ``mantissa`` bits.

    has_infinity: whether infinity and NaNs are encoded as in IEEE 754.
    """

    exponent: int
    mantissa: int
    has_infinity: bool = True

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def magnitude_mask(self) -> int:
        return (1 << (self.width - 1)) - 1

    @property
    def infinity(self) -> int:
        """The encoding of infinity, or of NaN in formats without infinity; finite magnitudes are smaller."""
        return self.magnitude_mask ^ ((1 << self.mantissa) - 1) if self.has_infinity else self.magnitude_mask

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.mantissa - 1) if self.has_infinity else self.magnitude_mask


NARROW = {
    "float16": NarrowFloat(5, 10),
    "float8_e5m2": NarrowFloat(5, 2),
    "float8_e4m3fn": NarrowFloat(4, 3, has_infinity=False),
}


def is_narrow(dtype: str) -> bool:
    """Whether values of the dtype are floats held as integers."""
    return dtype in NARROW or dtype == "bfloat16"


def literal(value: float, dtype: str) -> ll.Constant:
    """A float constant."""
    if not is_narrow(dtype):
        rounded = dt.to_numpy(dtype).type(value)
        return ll.Constant(value_type(dtype), float(rounded))
    code = np.array(value, dt.to_numpy(dtype)).view(f"uint{dt.bits(dtype)}")
    return ll.Constant(value_type(dtype), int(code))


def convert(b: ll.IRBuilder, value: ll.Value, source: str, target: str, f16c: bool = True) -> ll.Value:
    """Convert a value of dtype ``source`` to ``target``. f16c: the CPU has instructions for float16 conversions."""
    if source == target:
        return value
    if is_narrow(source):
        wide = _to_f32(b, value, source, f16c)
        return wide if target == "float32" else convert(b, wide, "float32", target, f16c)
    if is_narrow(target):
        return _to_narrow(b, value, source, target, f16c)
    to = vector_of(value_type(target), lanes_of(value))
    if target == "bool":
        zero = constant(value_type(source), 0, lanes_of(value))
        return b.fcmp_unordered("!=", value, zero) if dt.is_float(source) else b.icmp_unsigned("!=", value, zero)
    if dt.is_float(source) and dt.is_float(target):
        return b.fpext(value, to) if dt.bits(target) > dt.bits(source) else b.fptrunc(value, to)
    if dt.is_float(source):
        name = "fptosi" if dt.is_signed(target) else "fptoui"
        return intrinsic(b, f"llvm.{name}.sat.{type_suffix(to)}.{type_suffix(value.type)}", [value], to)
    if dt.is_float(target):
        return b.sitofp(value, to) if dt.is_signed(source) else b.uitofp(value, to)
    return resize(b, value, to, signed=dt.is_signed(source))


def resize(b: ll.IRBuilder, value: ll.Value, to: ll.Type, signed: bool) -> ll.Value:
    """Extend or truncate an integer to the width of type ``to``."""
    width, new = (width_of(t) for t in (value.type, to))
    if new == width:
        return value
    if new < width:
        return b.trunc(value, to)
    return b.sext(value, to) if signed else b.zext(value, to)


class _Bits:
    """Integer arithmetic on vectors of i32 or i64 with Python ints as constants."""

    def __init__(self, b: ll.IRBuilder, element: ll.IntType, lanes: int):
        self.b, self.element, self.lanes = b, element, lanes

    def const(self, value: int) -> ll.Constant:
        return constant(self.element, value, self.lanes)

    def __call__(self, op: str, a: ll.Value, c: int | ll.Value) -> ll.Value:
        method: Callable[[ll.Value, ll.Value], ll.Value] = getattr(self.b, op)
        return method(a, self.const(c) if isinstance(c, int) else c)

    def below(self, a: ll.Value, limit: int) -> ll.Value:
        return self.b.icmp_unsigned("<", a, self.const(limit))

    def view(self, value: ll.Value) -> ll.Value:
        return self.b.bitcast(value, vector_of(self.element, self.lanes))

    def as_f32(self, value: ll.Value) -> ll.Value:
        return self.b.bitcast(value, vector_of(F32, self.lanes))


# -- to float32 ---------------------------------------------------------------------------------------------------


def _to_f32(b: ll.IRBuilder, value: ll.Value, source: str, f16c: bool) -> ll.Value:
    lanes = lanes_of(value)
    if source == "float16" and f16c:
        return b.fpext(b.bitcast(value, vector_of(F16, lanes)), vector_of(F32, lanes))
    bits = _Bits(b, I32, lanes)
    raw = b.zext(value, vector_of(I32, lanes))
    return bits.as_f32(bits("shl", raw, 16)) if source == "bfloat16" else _widen(bits, raw, NARROW[source])


def _widen(bits: _Bits, raw: ll.Value, form: NarrowFloat) -> ll.Value:
    """Shift exponent and mantissa to their place, then multiply to correct the bias and normalize subnormal values."""
    b = bits.b
    magnitude = bits("and_", raw, form.magnitude_mask)
    placed = bits.as_f32(bits("shl", magnitude, 23 - form.mantissa))
    scaled = bits.view(b.fmul(placed, constant(F32, 2.0 ** (127 - form.bias), bits.lanes)))
    if form.has_infinity:
        special = bits("or_", scaled, 0x7F800000)
    else:
        special = bits.const(0x7FC00000)
    chosen = b.select(bits.below(magnitude, form.infinity), scaled, special)
    sign = bits("shl", bits("and_", raw, 1 << (form.width - 1)), 32 - form.width)
    return bits.as_f32(b.or_(chosen, sign))


# -- from float32 -------------------------------------------------------------------------------------------------


def _to_narrow(b: ll.IRBuilder, value: ll.Value, source: str, target: str, f16c: bool) -> ll.Value:
    lanes = lanes_of(value)
    if source == "float64" and target == "float16":
        value = _round_to_odd(b, value, lanes)
    else:
        value = convert(b, value, source, "float32", f16c)
    if target == "float16" and f16c:
        return b.bitcast(b.fptrunc(value, vector_of(F16, lanes)), vector_of(I16, lanes))
    bits = _Bits(b, I32, lanes)
    code = _round_bf16(bits, value) if target == "bfloat16" else _narrow(bits, value, NARROW[target])
    return b.trunc(code, vector_of(value_type(target), lanes))


def _round_bf16(bits: _Bits, value: ll.Value) -> ll.Value:
    """float32 to bfloat16 bits: the upper half, rounded to nearest even; a NaN keeps its sign only."""
    b, raw = bits.b, bits.view(value)
    odd = bits("and_", bits("lshr", raw, 16), 1)
    rounded = bits("lshr", b.add(raw, bits("add", odd, 0x7FFF)), 16)
    nan = bits("or_", bits("lshr", bits("and_", raw, 0x80000000), 16), 0x7FC0)
    return b.select(b.fcmp_unordered("uno", value, value), nan, rounded)


def _narrow(bits: _Bits, value: ll.Value, form: NarrowFloat) -> ll.Value:
    """Round normal results by adding half an ulp to the bits, subnormal ones by adding an aligning float."""
    b, raw = bits.b, bits.view(value)
    magnitude = bits("and_", raw, 0x7FFFFFFF)
    drop = 23 - form.mantissa
    odd = bits("and_", bits("lshr", magnitude, drop), 1)
    rounded = bits("lshr", b.add(magnitude, bits("add", odd, (1 << (drop - 1)) - 1)), drop)
    normal = bits("sub", rounded, (127 - form.bias) << form.mantissa)
    grid = 2.0 ** (23 + 1 - form.bias - form.mantissa)
    shifted = b.fadd(bits.as_f32(magnitude), constant(F32, grid, bits.lanes))
    subnormal = b.sub(bits.view(shifted), bits.view(constant(F32, grid, bits.lanes)))
    code = b.select(bits.below(magnitude, (128 - form.bias) << 23), subnormal, normal)
    code = b.select(bits.below(code, form.infinity), code, bits.const(form.infinity))
    code = b.select(b.fcmp_unordered("uno", value, value), bits.const(form.nan), code)
    sign = bits("lshr", bits("and_", raw, 0x80000000), 32 - form.width)
    return b.or_(code, sign)


def _round_to_odd(b: ll.IRBuilder, value: ll.Value, lanes: int) -> ll.Value:
    """float64 to float32, rounded to odd: rounding that to float16 equals one rounding (Boldo, Melquiond 2008)."""
    to = vector_of(F32, lanes)
    nearest = b.fptrunc(value, to)
    back = b.fpext(nearest, vector_of(F64, lanes))
    too_large = b.fcmp_ordered(">", _magnitude(b, back), _magnitude(b, value))
    inexact = b.fcmp_unordered("!=", back, value)
    bits = _Bits(b, I32, lanes)
    raw = bits.view(nearest)
    truncated = b.sub(raw, b.zext(too_large, raw.type))
    return bits.as_f32(b.or_(truncated, b.zext(inexact, raw.type)))


def _magnitude(b: ll.IRBuilder, value: ll.Value) -> ll.Value:
    return intrinsic(b, f"llvm.fabs.{type_suffix(value.type)}", [value], value.type)
