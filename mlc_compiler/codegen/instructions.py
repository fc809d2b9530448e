"""Tensor intrinsics: operands loaded as SIMD vectors, the result stored over the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..ir import dtype as dt
from ..ir.expr import Call, PrimExpr
from ..tir.calling import flat_index
from ..tir.intrinsics import Operand, TensorIntrin
from ..tir.nodes import BufferLoad
from . import llvm_ir as ll
from . import values as v
from .arithmetic import CodegenError
from .memory import MemoryEmitter

VectorCode = Callable[..., ll.Value]
"""``code(b, *operands, **scalars)`` emits an instruction and returns its result as a vector. b: the builder; operands:
vectors in storage type, the accumulator first; scalars: integers by name."""


@dataclass(frozen=True)
class Operands:
    """The operands of an instruction: addresses, and the values of its scalars by name."""

    addresses: Sequence[ll.Value]
    scalars: Mapping[str, ll.Value]


def emit_tensor_intrin(emit: MemoryEmitter, row: TensorIntrin, args: Sequence[PrimExpr]) -> ll.Value:
    """Emit one instruction. args: addresses of the operands, then the scalars.

    Raises CodegenError if the target does not have it.
    """
    kind = emit.target.kind if emit.target is not None else ""
    if emit.target is None or kind not in row.emit:
        raise _missing(emit, row, f"it has code for {' and '.join(row.emit) or 'no kind of target'}")
    if row.requires and not emit.target.has(row.requires):
        raise _missing(emit, row, f"it needs {row.requires}")
    count = len(row.operands)
    addresses = [_address_of(emit, a) for a in args[:count]]
    scalars = dict(zip(row.scalars, (emit(a) for a in args[count:]), strict=True))
    value: ll.Value = row.emit[kind](emit.b, row, Operands(addresses, scalars))
    return value


def _missing(emit: MemoryEmitter, row: TensorIntrin, why: str) -> CodegenError:
    return CodegenError(f"the target has no instruction {row.name!r}: {why}", where=[f"target {emit.target}"])


def on_vectors(code: VectorCode) -> Callable[[ll.IRBuilder, TensorIntrin, Operands], ll.Value]:
    """An ``emit`` for operands that are SIMD vectors in memory: load them, run ``code``, store the result."""

    def emit(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> ll.Value:
        read = list(zip(row.operands, operands.addresses, strict=True))[0 if row.accumulates else 1 :]
        result = code(b, *(_load(b, address, operand) for operand, address in read), **operands.scalars)
        b.store(result, operands.addresses[0], align=dt.nbytes(row.operands[0].dtype))
        return result

    return emit


def _address_of(emit: MemoryEmitter, e: PrimExpr) -> ll.Value:
    assert isinstance(e, Call) and isinstance(e.args[0], BufferLoad)
    load = e.args[0]
    return emit.address(load.buffer, emit(flat_index(load.buffer, load.indices)))


def _load(b: ll.IRBuilder, address: ll.Value, operand: Operand) -> ll.Value:
    vector = v.vector_of(v.storage_type(operand.dtype), operand.elements)
    return b.load(address, align=dt.nbytes(operand.dtype), typ=vector)
