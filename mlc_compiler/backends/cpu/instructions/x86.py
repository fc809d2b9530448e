"""Tensor intrinsics of x86-64: dot products of bytes, unpacking of 4-bit codes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from ....codegen import llvm_ir as ll
from ....codegen import values as v
from ....codegen.instructions import on_vectors
from ....ir.expr import PrimExpr, Var
from ....tir import te
from ....tir.intrinsics import Operand, TensorIntrin
from .dot import dot_product, dot_product_of_steps

LANES = 16  # of 32 bits in a 512-bit register


def _i32(value: PrimExpr) -> PrimExpr:
    return te.cast(value, "int32")


def _dot4(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(4, "k")
    return te.compute((LANES,), lambda i: te.sum(_i32(a[i, k]) * _i32(b[k]), axis=k), name="acc")


def _vpdpbusd(b: ll.IRBuilder, acc: ll.Value, codes: ll.Value, four: ll.Value) -> ll.Value:
    word = b.bitcast(four, v.I32)
    repeated = b.bitcast(v.splat(b, word, LANES), codes.type)
    return v.intrinsic(b, "llvm.x86.avx512.vpdpbusd.512", [acc, codes, repeated], acc.type)


VPDPBUSD = TensorIntrin(
    "avx512.vpdpbusd",
    (Operand("acc", (LANES,), "int32"), Operand("a", (LANES, 4), "uint8"), Operand("b", (4,), "int8")),
    _dot4,
    {"cpu": on_vectors(_vpdpbusd)},
    requires="avx512vnni",
    accumulates=True,
)


def _nibbles(word: te.Tensor, shift: Var) -> te.Tensor:
    def element(i: Var, byte: Var) -> PrimExpr:
        return te.cast((word[i] >> te.cast(byte * 8 + shift, "uint32")) & te.cast(15, "uint32"), "uint8")

    return te.compute((LANES, 4), element, name="codes")


def _shift_and_mask(b: ll.IRBuilder, word: ll.Value, shift: ll.Value) -> ll.Value:
    amount = v.splat(b, b.trunc(shift, v.I32), LANES)
    return b.and_(b.lshr(word, amount), v.constant(v.I32, 0x0F0F0F0F, LANES))


NIBBLES = TensorIntrin(
    "avx512.nibbles",
    (Operand("codes", (LANES, 4), "uint8"), Operand("word", (LANES,), "uint32")),
    _nibbles,
    {"cpu": on_vectors(_shift_and_mask)},
    requires="avx512f",
    scalars=("shift",),
)


# -- dot products of the bytes of words --------------------------------------------------------------------------------


def _dot_bytes(b: ll.IRBuilder, acc: ll.Value, weights: ll.Value, four: ll.Value, bits: int) -> ll.Value:
    return v.intrinsic(b, f"llvm.x86.avx512.vpdpbusd.{bits}", [acc, weights, four], acc.type)


def _avx2(b: ll.IRBuilder, acc: ll.Value, weights: ll.Value, four: ll.Value) -> ll.Value:
    """Sums of pairs of products are int16: 2 * 127 * 128 < 2 ** 15."""
    return b.add(acc, _widened(b, _pairs(b, weights, four)))


def _avx2_steps(b: ll.IRBuilder, acc: ll.Value, pairs: Sequence[tuple[ll.Value, ll.Value]]) -> ll.Value:
    """For smaller weights, sums of all steps are int16."""
    sums = [_pairs(b, weights, four) for weights, four in pairs]
    return b.add(acc, _widened(b, reduce(b.add, sums)))


def _avx2_signed(b: ll.IRBuilder, acc: ll.Value, weights: ll.Value, four: ll.Value) -> ll.Value:
    """For any int8: magnitudes of the weights, and activations with the signs of the weights, which -128 has not."""
    arguments = [weights, ll.Constant(v.I1, 0)]
    magnitudes = v.intrinsic(b, f"llvm.abs.{v.type_suffix(weights.type)}", arguments, weights.type)
    with_signs = v.intrinsic(b, "llvm.x86.avx2.psign.b", [four, weights], four.type)
    return _avx2(b, acc, magnitudes, with_signs)


def _avx2_bytes(b: ll.IRBuilder, acc: ll.Value, weights: ll.Value, four: ll.Value) -> ll.Value:
    """For any uint8: the weight is split into ``16 * high + low`` so that pair sums fit int16."""
    nibble, shift = v.constant(v.I8, 15, 32), v.constant(v.I8, 4, 32)
    low = _widened(b, _pairs(b, b.and_(weights, nibble), four))
    high = _widened(b, _pairs(b, b.lshr(weights, shift), four), 16)
    return b.add(b.add(acc, low), high)


def _pairs(b: ll.IRBuilder, weights: ll.Value, four: ll.Value) -> ll.Value:
    """int16 [16]: sums of two products of bytes."""
    return v.intrinsic(b, "llvm.x86.avx2.pmadd.ub.sw", [weights, four], ll.VectorType(v.I16, 16))


def _widened(b: ll.IRBuilder, pairs: ll.Value, factor: int = 1) -> ll.Value:
    """int32 [8]: sums of two int16, times a factor."""
    factors = v.constant(v.I16, factor, 16)
    return v.intrinsic(b, "llvm.x86.avx2.pmadd.wd", [pairs, factors], ll.VectorType(v.I32, 8))


AVX2_STEPS = (10, 8, 5, 4, 2)  # of a group of 32 or 40 weights, as many as int16 sums have room for
X86_DOT_PRODUCTS = (  # fastest first
    dot_product("dot4.avx512vnni", 16, "avx512vnni", partial(_dot_bytes, bits=512)),
    dot_product("dot4.avxvnni", 8, "avxvnni", partial(_dot_bytes, bits=256)),
    *(
        dot_product_of_steps(f"dot4.avx2.x{steps}", steps, 8, "avx2", _avx2_steps, max_weight=127 // steps)
        for steps in AVX2_STEPS
    ),
    dot_product("dot4.avx2", 8, "avx2", _avx2, max_weight=127),
    dot_product("dot4.avx2.signed", 8, "avx2", _avx2_signed, signed=True, min_digit=-127),
    dot_product("dot4.avx2.bytes", 8, "avx2", _avx2_bytes),
)
