"""From dtypes to LLVM types, and the conversions between values of them.

bfloat16 and 8-bit floats live in integers of their width and are computed in float32.
"""

from __future__ import annotations

from llvmlite import ir as ll

from ..ir import dtype as dt

I1, I8, I16, I32, I64 = (ll.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ll.HalfType(), ll.FloatType(), ll.DoubleType()
PTR = ll.PointerType()
VOID = ll.VoidType()

_FLOAT_TYPES = {"float16": F16, "float32": F32, "float64": F64}


def storage_type(dtype: str) -> ll.Type:
    """How one element lies in memory."""
    if dtype == "handle":
        return PTR
    return _FLOAT_TYPES.get(dtype) or ll.IntType(8 * dt.nbytes(dtype))


def value_type(dtype: str) -> ll.Type:
    """How one element is held in a register: bool is one bit."""
    return I1 if dtype == "bool" else storage_type(dtype)


def lanes_of(value: ll.Value) -> int:
    """SIMD lanes of a value; 1 for a scalar."""
    return value.type.count if isinstance(value.type, ll.VectorType) else 1


def vector_of(element: ll.Type, lanes: int) -> ll.Type:
    return element if lanes == 1 else ll.VectorType(element, lanes)


def splat(b: ll.IRBuilder, value: ll.Value, lanes: int) -> ll.Value:
    """A scalar in every lane."""
    if lanes == 1 or lanes_of(value) == lanes:
        return value
    vector = ll.VectorType(value.type, lanes)
    if isinstance(value, ll.Constant):
        return ll.Constant(vector, [value] * lanes)
    single = b.insert_element(ll.Constant(vector, ll.Undefined), value, ll.Constant(I32, 0))
    zeros = ll.Constant(ll.VectorType(I32, lanes), [0] * lanes)
    return b.shuffle_vector(single, ll.Constant(vector, ll.Undefined), zeros)


def same_lanes(b: ll.IRBuilder, *values: ll.Value) -> list[ll.Value]:
    """Scalars splatted to the lanes of the vectors among them."""
    lanes = max(lanes_of(v) for v in values)
    return [splat(b, v, lanes) for v in values]


def stack_slot(b: ll.IRBuilder, element: ll.Type, name: str = "", align: int | None = None) -> ll.Value:
    """Stack memory for one ``element``, as an opaque pointer."""
    slot = b.alloca(element, name=name)
    slot.align = align
    slot.type = PTR
    return slot


def constant(element: ll.Type, value: int | float, lanes: int = 1) -> ll.Constant:
    one = ll.Constant(element, value)
    return one if lanes == 1 else ll.Constant(ll.VectorType(element, lanes), [one] * lanes)


def intrinsic(b: ll.IRBuilder, name: str, args: list[ll.Value], result: ll.Type) -> ll.Value:
    """A call of an LLVM intrinsic or C function, declared on first use."""
    module = b.module
    fn = module.globals.get(name)
    if fn is None:
        fn = ll.Function(module, ll.FunctionType(result, [a.type for a in args]), name)
    return b.call(fn, args)


def type_suffix(t: ll.Type) -> str:
    """The type's part in an overloaded intrinsic's name: ``f32``, ``v16f32``, ``i64``."""
    if isinstance(t, ll.VectorType):
        return f"v{t.count}{type_suffix(t.element)}"
    names = {str(F16): "f16", str(F32): "f32", str(F64): "f64"}
    return names.get(str(t)) or f"i{t.width}"


def convert(b: ll.IRBuilder, value: ll.Value, source: str, target: str) -> ll.Value:
    """A value of dtype ``source`` as ``target``: float to float rounds to even, float to integer truncates."""
    if source == target:
        return value
    lanes = lanes_of(value)
    if source in ("bfloat16",):
        return convert(b, _bf16_to_f32(b, value, lanes), "float32", target)
    if target == "bfloat16":
        return _f32_to_bf16(b, convert(b, value, source, "float32"), lanes)
    to = vector_of(value_type(target), lanes)
    if target == "bool":
        zero = constant(value_type(source), 0, lanes)
        return b.fcmp_unordered("!=", value, zero) if dt.is_float(source) else b.icmp_unsigned("!=", value, zero)
    if dt.is_float(source) and dt.is_float(target):
        return b.fpext(value, to) if dt.bits(target) > dt.bits(source) else b.fptrunc(value, to)
    if dt.is_float(source):
        return b.fptosi(value, to) if dt.is_signed(target) else b.fptoui(value, to)
    if dt.is_float(target):
        return b.sitofp(value, to) if dt.is_signed(source) else b.uitofp(value, to)
    return _int_to_int(b, value, source, target, to)


def _int_to_int(b: ll.IRBuilder, value: ll.Value, source: str, target: str, to: ll.Type) -> ll.Value:
    width = value.type.element.width if isinstance(value.type, ll.VectorType) else value.type.width
    new = to.element.width if isinstance(to, ll.VectorType) else to.width
    if new == width:
        return value
    if new < width:
        return b.trunc(value, to)
    return b.sext(value, to) if dt.is_signed(source) else b.zext(value, to)


def _bf16_to_f32(b: ll.IRBuilder, value: ll.Value, lanes: int) -> ll.Value:
    wide = b.zext(value, vector_of(I32, lanes))
    return b.bitcast(b.shl(wide, constant(I32, 16, lanes)), vector_of(F32, lanes))


def _f32_to_bf16(b: ll.IRBuilder, value: ll.Value, lanes: int) -> ll.Value:
    """Round to nearest even on the upper half of the bits; NaN stays NaN."""
    raw = b.bitcast(value, vector_of(I32, lanes))
    odd = b.and_(b.lshr(raw, constant(I32, 16, lanes)), constant(I32, 1, lanes))
    rounded = b.add(raw, b.add(odd, constant(I32, 0x7FFF, lanes)))
    is_nan = b.fcmp_unordered("uno", value, value)
    quiet = b.or_(raw, constant(I32, 0x00400000, lanes))
    chosen = b.select(is_nan, quiet, rounded)
    return b.trunc(b.lshr(chosen, constant(I32, 16, lanes)), vector_of(I16, lanes))


def parse_type(text: str) -> ll.VectorType:
    """``"i32x16"`` -> <16 x i32>, ``"f32x8"`` -> <8 x float>."""
    element, _, lanes = text.partition("x")
    scalar = {"f16": F16, "f32": F32, "f64": F64}.get(element) or ll.IntType(int(element[1:]))
    return ll.VectorType(scalar, int(lanes))


def spell(b: ll.IRBuilder, llvm: str, args: list[ll.Value]) -> ll.Value:
    """An instruction from a table row: an LLVM intrinsic, or ``op constant`` steps on its one argument."""
    if llvm.startswith("llvm."):
        return intrinsic(b, llvm, args, args[0].type)
    (value,) = args
    for step in llvm.split(";"):
        op, number = step.split()
        amount = constant(value.type.element, int(number, 0), value.type.count)
        value = {"lshr": b.lshr, "and": b.and_}[op](value, amount)
    return value
