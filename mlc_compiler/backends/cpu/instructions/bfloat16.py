"""Dot products of pairs of bfloat16 numbers on x86-64 (AVX-512 BF16)."""

from __future__ import annotations

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import on_vectors
from ....ir.expr import Call, PrimExpr
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin

LANES = 16  # of 32 bits in a 512-bit register


BFLOAT = ll.BFloatType()


def _halves(word: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """float32: the bfloat16 numbers in the lower and the upper half of a uint32."""
    bits = (word << te.cast(16, "uint32"), word & te.cast(0xFFFF0000, "uint32"))
    low, high = (Call("reinterpret", (b,), "float32") for b in bits)
    return low, high


def _dot2(words: te.Tensor, two: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(2, "k")

    def dot(i: PrimExpr) -> PrimExpr:
        low, high = _halves(words[i])
        return te.sum(te.select(k < 1, low, high) * te.f32(two[k]), axis=k)

    return te.compute((LANES,), dot, name="acc")


def _vdpbf16ps(b: ll.IRBuilder, acc: ll.Value, words: ll.Value, two: ll.Value) -> ll.Value:
    numbers = ll.VectorType(BFLOAT, 2 * LANES)
    repeated = v.splat(b, b.bitcast(two, v.I32), LANES)
    return v.intrinsic(
        b, "llvm.x86.avx512bf16.dpbf16ps.512", [acc, b.bitcast(words, numbers), b.bitcast(repeated, numbers)], acc.type
    )


def _dot2_pairs(two: te.Tensor, pairs: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(2, "k")
    return te.compute((LANES,), lambda i: te.sum(te.f32(two[k]) * te.f32(pairs[i, k]), axis=k), name="acc")


def _vdpbf16ps_pairs(b: ll.IRBuilder, acc: ll.Value, two: ll.Value, pairs: ll.Value) -> ll.Value:
    return _vdpbf16ps(b, acc, pairs, two)


def _round(values: te.Tensor) -> te.Tensor:
    return te.compute((LANES,), lambda i: te.cast(values[i], "bfloat16"), name="rounded")


def _vcvtneps2bf16(b: ll.IRBuilder, values: ll.Value) -> ll.Value:
    rounded = v.intrinsic(b, "llvm.x86.avx512bf16.cvtneps2bf16.512", [values], ll.VectorType(BFLOAT, LANES))
    return b.bitcast(rounded, ll.VectorType(v.I16, LANES))


def _join(low: te.Tensor, high: te.Tensor) -> te.Tensor:
    def bits(x: PrimExpr) -> PrimExpr:
        return te.cast(Call("reinterpret", (te.cast(x, "bfloat16"),), "uint16"), "uint32")

    return te.compute((LANES,), lambda i: bits(low[i]) | (bits(high[i]) << te.cast(16, "uint32")), name="words")


def _rounded_and_joined(b: ll.IRBuilder, low: ll.Value, high: ll.Value) -> ll.Value:
    alternating = [i // 2 + i % 2 * LANES for i in range(2 * LANES)]
    order = ll.Constant(ll.VectorType(v.I32, 2 * LANES), alternating)
    joined = b.shuffle_vector(_vcvtneps2bf16(b, low), _vcvtneps2bf16(b, high), order)
    return b.bitcast(joined, ll.VectorType(v.I32, LANES))


DOT2 = TensorIntrin(
    "dot2.avx512bf16",
    (Operand("acc", (LANES,), "float32"), Operand("words", (LANES,), "uint32"), Operand("two", (2,), "bfloat16")),
    _dot2,
    {"cpu": on_vectors(_vdpbf16ps)},
    requires="avx512bf16",
    accumulates=True,
)
DOT2_PAIRS = TensorIntrin(
    "dot2.avx512bf16.pairs",
    (Operand("acc", (LANES,), "float32"), Operand("two", (2,), "bfloat16"), Operand("pairs", (LANES, 2), "bfloat16")),
    _dot2_pairs,
    {"cpu": on_vectors(_vdpbf16ps_pairs)},
    requires="avx512bf16",
    accumulates=True,
)
JOIN = TensorIntrin(
    "join.avx512bf16",
    (Operand("words", (LANES,), "uint32"), Operand("low", (LANES,), "float32"), Operand("high", (LANES,), "float32")),
    _join,
    {"cpu": on_vectors(_rounded_and_joined)},
    requires="avx512bf16",
)
ROUND = TensorIntrin(
    "round.avx512bf16",
    (Operand("rounded", (LANES,), "bfloat16"), Operand("values", (LANES,), "float32")),
    _round,
    {"cpu": on_vectors(_vcvtneps2bf16)},
    requires="avx512bf16",
)
