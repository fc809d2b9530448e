"""Hardware instructions of ``tir/intrinsics.py``: operands loaded as vectors, the result stored over the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir as ll

from ..ir import dtype as dt
from ..ir.expr import Call, PrimExpr
from ..tir.calling import flat_index
from ..tir.intrinsics import Intrinsic, Operand
from ..tir.nodes import BufferLoad
from . import values as v
from .memory import MemoryEmitter


def run_instruction(emit: MemoryEmitter, row: Intrinsic, args: Sequence[PrimExpr]) -> ll.Value:
    """Emit one instruction on operands given as addresses, and on the integers after them."""
    count = len(row.operands)
    pointers = [_address_of(emit, a) for a in args[:count]]
    scalars = [emit(a) for a in args[count:]]
    operands = row.operands if row.accumulates else row.operands[1:]
    addresses = pointers if row.accumulates else pointers[1:]
    types = [parse_type(t) for t in row.types]
    loaded = [_load(emit.b, p, o, t) for p, o, t in zip(addresses, operands, types, strict=True)]
    result = _spell(emit.b, row.llvm, loaded, dict(zip(row.scalars, scalars, strict=True)))
    emit.b.store(result, pointers[0], align=dt.nbytes(row.operands[0].dtype))
    return result


def _address_of(emit: MemoryEmitter, e: PrimExpr) -> ll.Value:
    assert isinstance(e, Call) and isinstance(e.args[0], BufferLoad)
    load = e.args[0]
    return emit.address(load.buffer, emit(flat_index(load.buffer, load.indices)))


def _load(b: ll.IRBuilder, pointer: ll.Value, operand: Operand, to: ll.VectorType) -> ll.Value:
    align = dt.nbytes(operand.dtype)
    if not operand.broadcast:
        return b.load(pointer, align=align, typ=to)
    scalar = b.load(pointer, align=align, typ=ll.IntType(operand.broadcast))
    repeated = v.splat(b, scalar, to.count * to.element.width // operand.broadcast)
    return b.bitcast(repeated, to)


def parse_type(text: str) -> ll.VectorType:
    """``"i32x16"`` -> <16 x i32>, ``"f32x8"`` -> <8 x float>."""
    element, _, lanes = text.partition("x")
    scalar = {"f16": v.F16, "f32": v.F32, "f64": v.F64}.get(element) or ll.IntType(int(element[1:]))
    return ll.VectorType(scalar, int(lanes))


def _spell(b: ll.IRBuilder, llvm: str, args: list[ll.Value], scalars: Mapping[str, ll.Value]) -> ll.Value:
    """An instruction from a table row: an LLVM intrinsic, or steps ``op amount`` on its one argument.

    An amount is a number or the name of one of the row's scalars.
    """
    if llvm.startswith("llvm."):
        return v.intrinsic(b, llvm, args, args[0].type)
    (value,) = args
    element, count = value.type.element, value.type.count
    for step in llvm.split(";"):
        op, name = step.split()
        if name in scalars:
            amount = v.splat(b, b.trunc(scalars[name], element), count)
        else:
            amount = v.constant(element, int(name, 0), count)
        value = {"lshr": b.lshr, "and": b.and_}[op](value, amount)
    return value
