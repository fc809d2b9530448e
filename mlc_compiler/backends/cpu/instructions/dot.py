"""Dot products of bytes: the CPU extension that each requires and the range of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir as ll

from ....codegen import values as v
from ....codegen.instructions import on_vectors
from ....ir.expr import PrimExpr
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin


def byte_of(word: PrimExpr, byte: PrimExpr, signed: bool) -> PrimExpr:
    """int32: byte ``byte`` of a uint32, counted from the lowest."""
    shift = te.cast(byte * 8, "uint32")
    value = te.cast((word >> shift) & te.cast(255, "uint32"), "int32")
    return (value ^ 128) - 128 if signed else value


@dataclass(frozen=True)
class DotProduct:
    """``acc[i] += sum over 4 bytes of words[i].byte(b) * four[b]`` for int8 ``four``, as one or a few instructions.

    signed: the bytes of the words are int8, not uint8. max_weight: largest uint8 for which the sums are exact.
    """

    intrin: TensorIntrin
    signed: bool
    max_weight: int

    @property
    def lanes(self) -> int:
        return self.intrin.operands[0].shape[0]


def dot_product(
    name: str,
    lanes: int,
    requires: str,
    emit: Callable[..., ll.Value],
    *,
    signed: bool = False,
    max_weight: int = 255,
) -> DotProduct:
    """A row of the table. emit: ``emit(b, acc, words, four)`` on vectors; ``four`` is repeated for each lane."""

    def semantics(words: te.Tensor, four: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(4, "k")

        def dot(i: PrimExpr) -> PrimExpr:
            return te.sum(byte_of(words[i], k, signed) * te.cast(four[k], "int32"), axis=k)

        return te.compute((lanes,), dot, name="acc")

    def on_bytes(b: ll.IRBuilder, acc: ll.Value, words: ll.Value, four: ll.Value) -> ll.Value:
        bytes_type = ll.VectorType(v.I8, 4 * lanes)
        repeated = v.splat(b, b.bitcast(four, v.I32), lanes)
        return emit(b, acc, b.bitcast(words, bytes_type), b.bitcast(repeated, bytes_type))

    operands = (Operand("acc", (lanes,), "int32"), Operand("words", (lanes,), "uint32"), Operand("four", (4,), "int8"))
    row = TensorIntrin(name, operands, semantics, {"cpu": on_vectors(on_bytes)}, requires, accumulates=True)
    return DotProduct(row, signed, max_weight)
