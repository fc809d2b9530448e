"""LLVM types of dtypes, and helpers on their values.

Floats narrower than float32 are held as integers of their width; integers narrower than a byte are stored in a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..ir import dtype as dt
from . import llvm_ir as ll

I1, I8, I16, I32, I64 = (ll.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ll.HalfType(), ll.FloatType(), ll.DoubleType()
PTR = ll.PointerType()
VOID = ll.VoidType()

_FLOAT_TYPES = {"float32": F32, "float64": F64}
_FLOAT_SUFFIXES: Mapping[ll.Type, str] = {F16: "f16", F32: "f32", F64: "f64"}


@cache
def storage_type(dtype: str) -> ll.Type:
    """The LLVM type of an element in memory."""
    if dtype == "handle":
        return PTR
    return _FLOAT_TYPES.get(dtype) or ll.IntType(8 * dt.nbytes(dtype))


@cache
def value_type(dtype: str) -> ll.Type:
    """The LLVM type of an element in a register: of the dtype's width; i1 for bool."""
    if dtype == "bool":
        return I1
    return storage_type(dtype) if dtype == "handle" or dtype in _FLOAT_TYPES else ll.IntType(dt.bits(dtype))


def from_memory(b: ll.IRBuilder, loaded: ll.Value, dtype: str) -> ll.Value:
    """Convert a loaded element from its storage type to its value type."""
    if dtype == "bool":
        return b.icmp_unsigned("!=", loaded, constant(I8, 0, lanes_of(loaded)))
    return b.trunc(loaded, vector_of(value_type(dtype), lanes_of(loaded))) if dt.bits(dtype) < 8 else loaded


def to_memory(b: ll.IRBuilder, value: ll.Value, dtype: str) -> ll.Value:
    """Convert a value to its storage type; unused bits are zero."""
    narrow = dtype == "bool" or dt.bits(dtype) < 8
    return b.zext(value, vector_of(I8, lanes_of(value))) if narrow else value


def lanes_of(value: ll.Value) -> int:
    """SIMD lanes of a value; 1 for a scalar."""
    return value.type.count if isinstance(value.type, ll.VectorType) else 1


def width_of(t: ll.Type) -> int:
    """Bits of an integer, or of an element of a vector of integers."""
    element = t.element if isinstance(t, ll.VectorType) else t
    assert isinstance(element, ll.IntType)
    return element.width


@cache
def vector_of(element: ll.Type, lanes: int) -> ll.Type:
    return element if lanes == 1 else ll.VectorType(element, lanes)


def splat(b: ll.IRBuilder, value: ll.Value, lanes: int) -> ll.Value:
    """Broadcast a scalar to ``lanes`` lanes."""
    if lanes == 1 or lanes_of(value) == lanes:
        return value
    vector = ll.VectorType(value.type, lanes)
    if isinstance(value, ll.Constant):
        return ll.Constant(vector, [value] * lanes)
    single = b.insert_element(ll.Constant(vector, ll.Undefined), value, i32(0))
    zeros = ll.Constant(ll.VectorType(I32, lanes), [0] * lanes)
    return b.shuffle_vector(single, ll.Constant(vector, ll.Undefined), zeros)


def same_lanes(b: ll.IRBuilder, *values: ll.Value) -> list[ll.Value]:
    """Broadcast scalars to the lane count of the vectors among the values."""
    lanes = max(lanes_of(v) for v in values)
    return [splat(b, v, lanes) for v in values]


def i32(value: int) -> ll.Constant:
    """A 32-bit integer."""
    return ll.Constant(I32, value)


def i64(value: int) -> ll.Constant:
    """A 64-bit integer."""
    return ll.Constant(I64, value)


def is_null(b: ll.IRBuilder, pointer: ll.Value) -> ll.Value:
    """Whether a pointer is null."""
    return b.icmp_unsigned("==", b.ptrtoint(pointer, I64), i64(0))


def constant(element: ll.Type, value: int | float, lanes: int = 1) -> ll.Constant:
    one = ll.Constant(element, value)
    return one if lanes == 1 else ll.Constant(ll.VectorType(element, lanes), [one] * lanes)


def intrinsic(b: ll.IRBuilder, name: str, args: list[ll.Value], result: ll.Type) -> ll.Value:
    """Emit a call of an LLVM intrinsic or C function, declared on first use."""
    module = b.module
    fn = module.get_function(name)
    if fn is None:
        fn = ll.Function(module, ll.FunctionType(result, [a.type for a in args]), name)
    return b.call(fn, args)


def type_suffix(t: ll.Type) -> str:
    """The suffix of a type in the names of overloaded intrinsics: ``f32``, ``v16f32``, ``i64``."""
    if isinstance(t, ll.VectorType):
        return f"v{t.count}{type_suffix(t.element)}"
    return _FLOAT_SUFFIXES.get(t) or f"i{width_of(t)}"
