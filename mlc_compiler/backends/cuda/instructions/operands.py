"""Operands of instructions in registers: loading and storing the elements that one lane holds."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.arithmetic import CodegenError
from ....codegen.instructions import Operands
from ....codegen.values import F32, I32
from ....ir import dtype as dt
from ....tir.intrinsics import TensorIntrin

SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
    "int32": "s32",
    "uint32": "u32",
}
"""PTX's names of dtypes, used in the names of the rows."""

_SPACES = {"global": 1, "shared": 3}


def address(row: TensorIntrin, operands: Operands, index: int) -> ll.Value:
    """The address of an operand. Raises CodegenError when it is not in the memory that the row declares."""
    operand, pointer = row.operands[index], operands.addresses[index]
    space = _SPACES.get(operand.scope)
    if space is not None and pointer.type is not ll.PointerType(space):
        raise CodegenError(f"{row.name}: the operand {operand.name!r} is not in {operand.scope} memory")
    return pointer


def as_i32(b: ll.IRBuilder, value: ll.Value) -> ll.Value:
    """An integer scalar as the i32 that NVVM's intrinsics take."""
    if isinstance(value, ll.Constant):
        return ll.Constant(I32, value.constant)
    return value if value.type == I32 else b.trunc(value, I32)


def load(b: ll.IRBuilder, row: TensorIntrin, operands: Operands, index: int, register: ll.Type = I32) -> list[ll.Value]:
    """The elements of an operand that one lane holds, as registers of 32 bits."""
    operand, pointer = row.operands[index], address(row, operands, index)
    count = lane_elements(row, index) * dt.nbytes(operand.dtype) // 4
    return load_registers(b, pointer, register, count, dt.nbytes(operand.dtype))


def load_registers(b: ll.IRBuilder, pointer: ll.Value, register: ll.Type, count: int, align: int) -> list[ll.Value]:
    """``count`` registers of 32 bits from consecutive memory, aligned to ``align`` bytes."""
    if count == 1:
        return [b.load(pointer, align=align, typ=register)]
    if isinstance(register, ll.VectorType):  # LLVM has no vectors of vectors
        words = load_registers(b, pointer, I32, count, align)
        return [b.bitcast(word, register) for word in words]
    vector = b.load(pointer, align=align, typ=ll.VectorType(register, count))
    return [b.extract_element(vector, v.i32(i)) for i in range(count)]


def store(b: ll.IRBuilder, row: TensorIntrin, operands: Operands, values: Sequence[ll.Value]) -> None:
    """Store registers over the elements of operand 0 that one lane holds."""
    store_registers(b, address(row, operands, 0), values, dt.nbytes(row.operands[0].dtype))


def store_registers(b: ll.IRBuilder, pointer: ll.Value, values: Sequence[ll.Value], align: int) -> None:
    """Store registers of 32 bits to consecutive memory, aligned to ``align`` bytes."""
    element = F32 if values[0].type == F32 else I32
    words = [value if value.type == element else b.bitcast(value, element) for value in values]
    if len(words) == 1:
        b.store(words[0], pointer, align=align)
        return
    vector: ll.Value = ll.Constant(ll.VectorType(element, len(words)), ll.Undefined)
    for i, word in enumerate(words):
        vector = b.insert_element(vector, word, v.i32(i))
    b.store(vector, pointer, align=align)


def results(b: ll.IRBuilder, value: ll.Value) -> list[ll.Value]:
    """The results of an instruction: the fields of a struct, or the value alone."""
    if not isinstance(value.type, ll.LiteralStructType):
        return [value]
    return [b.extract_value(value, i) for i in range(len(value.type.elements))]


def lane_elements(row: TensorIntrin, index: int) -> int:
    """The number of elements of an operand that one lane holds: its own row, or its part of a fragment."""
    return row.operands[index].elements // row.lanes
