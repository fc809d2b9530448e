"""Dot products of bytes: the CPU extension that each requires and the range of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import Operands, on_vectors
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
    """``acc[i] += sum over steps and 4 bytes of words[s, i].byte(b) * fours[s, b]`` for int8 ``fours``, in a few
    instructions.

    signed: the bytes of the words are int8, not uint8. max_weight, min_digit: the largest uint8, and the smallest of
    ``fours``, for which the sums are exact. steps: words of a lane; operands of one step have no axis of steps.
    """

    intrin: TensorIntrin
    signed: bool
    max_weight: int
    min_digit: int
    steps: int

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
    min_digit: int = -128,
) -> DotProduct:
    """A row of the table, of one step. emit: ``emit(b, acc, words, four)``; ``four`` is repeated for each lane."""

    def semantics(words: te.Tensor, four: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(4, "k")

        def dot(i: PrimExpr) -> PrimExpr:
            return te.sum(byte_of(words[i], k, signed) * te.cast(four[k], "int32"), axis=k)

        return te.compute((lanes,), dot, name="acc")

    def on_bytes(b: ll.IRBuilder, acc: ll.Value, words: ll.Value, four: ll.Value) -> ll.Value:
        return emit(b, acc, b.bitcast(words, _bytes(lanes)), _repeated(b, four, lanes))

    operands = (Operand("acc", (lanes,), "int32"), Operand("words", (lanes,), "uint32"), Operand("four", (4,), "int8"))
    row = TensorIntrin(name, operands, semantics, {"cpu": on_vectors(on_bytes)}, requires, accumulates=True)
    return DotProduct(row, signed, max_weight, min_digit, 1)


def dot_product_of_steps(
    name: str, steps: int, lanes: int, requires: str, emit: Callable[..., ll.Value], *, max_weight: int
) -> DotProduct:
    """A row of the table, of several steps. emit: ``emit(b, acc, pairs)`` with (words, four) of each step."""

    def semantics(words: te.Tensor, fours: te.Tensor) -> te.Tensor:
        s, k = te.reduce_axis(steps, "s"), te.reduce_axis(4, "k")

        def dot(i: PrimExpr) -> PrimExpr:
            return te.sum(byte_of(words[s, i], k, False) * te.cast(fours[s, k], "int32"), axis=[s, k])

        return te.compute((lanes,), dot, name="acc")

    def on_steps(b: ll.IRBuilder, row: TensorIntrin, operands: Operands) -> ll.Value:
        at, *others = operands.addresses
        words, fours = (
            [b.load(b.gep(start, [v.i32(s)], source_etype=each), align=align, typ=each) for s in range(steps)]
            for start, each, align in zip(others, (_bytes(lanes), ll.VectorType(v.I8, 4)), (4, 1), strict=True)
        )
        acc = b.load(at, align=4, typ=ll.VectorType(v.I32, lanes))
        pairs = [(word, _repeated(b, four, lanes)) for word, four in zip(words, fours, strict=True)]
        result = emit(b, acc, pairs)
        b.store(result, at, align=4)
        return result

    shapes = (("acc", (lanes,), "int32"), ("words", (steps, lanes), "uint32"), ("fours", (steps, 4), "int8"))
    operands = tuple(Operand(*shape) for shape in shapes)
    row = TensorIntrin(name, operands, semantics, {"cpu": on_steps}, requires, accumulates=True)
    return DotProduct(row, False, max_weight, -128, steps)


def _bytes(lanes: int) -> ll.VectorType:
    return ll.VectorType(v.I8, 4 * lanes)


def _repeated(b: ll.IRBuilder, four: ll.Value, lanes: int) -> ll.Value:
    """Four bytes, repeated for each lane."""
    return b.bitcast(v.splat(b, b.bitcast(four, v.I32), lanes), _bytes(lanes))
