"""Hardware instructions of ``tir/intrinsics.py``: operands loaded as vectors, the result stored over the first."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from llvmlite import ir as ll

from ..ir import dtype as dt
from ..ir.expr import Call, PrimExpr
from ..tir.calling import flat_index
from ..tir.intrinsics import Intrinsic, Operand
from ..tir.nodes import BufferLoad
from . import values as v
from .memory import MemoryEmitter


class _Bfloat(ll.Type):
    """LLVM's bfloat, which llvmlite does not name; only operands of instructions have it."""

    intrinsic_name = "bf16"
    width = 16

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bfloat)

    def __hash__(self) -> int:
        return hash(_Bfloat)


BFLOAT = _Bfloat()


def run_instruction(emit: MemoryEmitter, row: Intrinsic, args: Sequence[PrimExpr]) -> ll.Value:
    """Emit one instruction on operands given as addresses, and on the integers after them."""
    count = len(row.operands)
    pointers = [_address_of(emit, a) for a in args[:count]]
    scalars = [emit(a) for a in args[count:]]
    operands = row.operands if row.accumulates else row.operands[1:]
    addresses = pointers if row.accumulates else pointers[1:]
    types = [parse_type(t) for t in row.types]
    loaded = [_load(emit.b, p, o, t) for p, o, t in zip(addresses, operands, types, strict=True)]
    result = _look_up(emit.b, row, loaded[0], scalars[0]) if row.table else _spell(emit.b, row.llvm, loaded)
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


def _look_up(b: ll.IRBuilder, row: Intrinsic, lanes: ll.Value, shift: ll.Value) -> ll.Value:
    """``table[(lane >> shift) % len(table)]`` in every 16-bit lane, as bfloat16 bits.

    The permutation looks at five bits of a lane, so a table of sixteen stands there twice and nothing needs masking.
    """
    count = lanes.type.count
    raw = np.array(row.table, ml_dtypes.bfloat16).view(np.uint16).tolist() * (count // len(row.table))
    table = ll.Constant(lanes.type, [ll.Constant(v.I16, value) for value in raw])
    amount = v.splat(b, b.trunc(shift, v.I16), count)
    return v.intrinsic(b, "llvm.x86.avx512.permvar.hi.512", [table, b.lshr(lanes, amount)], lanes.type)


def parse_type(text: str) -> ll.VectorType:
    """``"i32x16"`` -> <16 x i32>, ``"f32x8"`` -> <8 x float>."""
    element, _, lanes = text.partition("x")
    scalar = {"f16": v.F16, "bf16": BFLOAT, "f32": v.F32, "f64": v.F64}.get(element) or ll.IntType(int(element[1:]))
    return ll.VectorType(scalar, int(lanes))


def _spell(b: ll.IRBuilder, llvm: str, args: list[ll.Value]) -> ll.Value:
    """An instruction from a table row: an LLVM intrinsic, or ``op constant`` steps on its one argument."""
    if llvm.startswith("llvm."):
        return v.intrinsic(b, llvm, args, args[0].type)
    (value,) = args
    for step in llvm.split(";"):
        op, number = step.split()
        amount = v.constant(value.type.element, int(number, 0), value.type.count)
        value = {"lshr": b.lshr, "and": b.and_}[op](value, amount)
    return value
