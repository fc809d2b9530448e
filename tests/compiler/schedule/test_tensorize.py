"""tensorize replaces loops only by instructions with the same semantics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlc_compiler import build, emit_llvm
from mlc_compiler.codegen import values as v
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.codegen.instructions import on_vectors
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.expr import Call, IntImm
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.ir.visitor import walk
from mlc_compiler.passes.lower_blocks import lower_blocks
from mlc_compiler.script.parser import parse
from mlc_compiler.script.printer import script
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.intrinsics import (
    Operand,
    TensorIntrin,
    find_tensor_intrin,
    register_tensor_intrin,
    tensor_intrins,
    written_buffers,
)
from mlc_compiler.tir.nodes import Buffer, BufferLoad, Evaluate, PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.tir.schedule.access import accesses_in
from mlc_errors import MLCError


def dot_product(signed_codes: bool = False, lanes: int = 16) -> Schedule:
    a = te.placeholder((3, lanes, 4), "int8" if signed_codes else "uint8", "a")
    x = te.placeholder((3, 4), "int8", "x")
    k, g = te.reduce_axis(4, "k"), te.reduce_axis(3, "g")
    products = te.compute(
        (lanes,), lambda i: te.sum(te.cast(a[g, i, k], "int32") * te.cast(x[g, k], "int32"), axis=[g, k]), name="acc"
    )
    s = Schedule(te.create_prim_func([a, x, products]))
    i, g_loop, k_loop = s.get_loops("acc")
    s.reorder(g_loop, i, k_loop)
    s.decompose_reduction("acc", g_loop)
    return s


def lane_loop(s: Schedule):
    return s.get_loops("acc_update")[1]


def test_the_instruction_replaces_the_loops():
    s = dot_product()
    s.tensorize(lane_loop(s), "avx512.vpdpbusd")
    calls = [n for n in walk(s.func.body) if isinstance(n, Evaluate)]
    assert len(calls) == 1
    assert "intrinsic.avx512.vpdpbusd" in script(s.func)
    assert structural_equal(parse(script(s.func)), s.func)


@pytest.mark.parametrize("lowered", [False, True])
def test_the_result_stays_the_same(lowered: bool):
    s = dot_product()
    s.tensorize(lane_loop(s), "avx512.vpdpbusd")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (3, 16, 4)).astype(np.uint8)
    x = rng.integers(-128, 128, (3, 4)).astype(np.int8)
    out = np.zeros(16, np.int32)
    run_prim_func(lower_blocks(s.func) if lowered else s.func, a, x, out)
    assert np.array_equal(out, np.einsum("gik,gk->i", a.astype(np.int32), x.astype(np.int32)))


def test_other_types_are_refused():
    s = dot_product(signed_codes=True)
    with pytest.raises(ScheduleError, match="BufferLoad of int8, not BufferLoad of uint8"):
        s.tensorize(lane_loop(s), "avx512.vpdpbusd")


def test_other_extents_are_refused():
    s = dot_product(lanes=8)
    with pytest.raises(ScheduleError, match=r"its loops have extents \[8, 4\]; the instruction's \[16, 4\]"):
        s.tensorize(lane_loop(s), "avx512.vpdpbusd")


def test_other_loops_are_refused():
    s = dot_product()
    with pytest.raises(ScheduleError, match="extents"):
        s.tensorize(s.get_loops("acc_update")[0], "avx512.vpdpbusd")


def test_an_initialisation_is_refused():
    a = te.placeholder((16, 4), "uint8", "a")
    x = te.placeholder((4,), "int8", "x")
    k = te.reduce_axis(4, "k")
    acc = te.compute((16,), lambda i: te.sum(te.cast(a[i, k], "int32") * te.cast(x[k], "int32"), axis=k), name="acc")
    s = Schedule(te.create_prim_func([a, x, acc]))
    with pytest.raises(ScheduleError, match="decompose_reduction first"):
        s.tensorize(s.get_loops("acc")[0], "avx512.vpdpbusd")


def test_an_unknown_instruction_lists_the_table():
    s = dot_product()
    with pytest.raises(ScheduleError, match="avx512.vpdpbusd"):
        s.tensorize(lane_loop(s), "avx1024.dream")


def test_the_instruction_counts_as_a_write():
    s = dot_product()
    s.tensorize(lane_loop(s), "avx512.vpdpbusd")
    assert id(s.func.buffers[-1]) in written_buffers(lower_blocks(s.func).body)


@pytest.mark.parametrize("half", [0, 1])
def test_nibbles_are_unpacked_as_told(half: int):
    row = find_tensor_intrin("avx512.nibbles")
    words = np.random.default_rng(1).integers(0, 2**32, 16, dtype=np.uint32)
    out = np.zeros((16, 4), np.uint8)
    run_prim_func(row.function, words, out, 4 * half)
    expected = np.stack([(words >> np.uint32(8 * b + 4 * half)) & 15 for b in range(4)], -1)
    assert np.array_equal(out, expected)


def dot_of_pairs(b, acc, left, pair):
    """Emit ``vpmaddwd`` and an addition."""
    repeated = b.bitcast(v.splat(b, b.bitcast(pair, v.I32), 8), left.type)
    return b.add(acc, v.intrinsic(b, "llvm.x86.avx2.pmadd.wd", [left, repeated], acc.type))


def meaning_of_pairs(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(2, "k")
    return te.compute((8,), lambda i: te.sum(te.cast(a[i, k], "int32") * te.cast(b[k], "int32"), axis=k), name="acc")


PAIRS = TensorIntrin(
    "test.pmaddwd",
    (Operand("acc", (8,), "int32"), Operand("a", (8, 2), "int16"), Operand("b", (2,), "int16")),
    meaning_of_pairs,
    {"cpu": on_vectors(dot_of_pairs)},
    requires="avx2",
    accumulates=True,
)


def product_of_pairs() -> PrimFunc:
    """out[i] = sum of a[i, k] * b[k] over int16, 40 products each."""
    a, b = te.placeholder((8, 40), "int16", "a"), te.placeholder((40,), "int16", "b")
    g, k = te.reduce_axis(20, "g"), te.reduce_axis(2, "k")
    out = te.compute(
        (8,),
        lambda i: te.sum(te.cast(a[i, g * 2 + k], "int32") * te.cast(b[g * 2 + k], "int32"), axis=[g, k]),
        name="out",
    )
    s = Schedule(te.create_prim_func([a, b, out]))
    row, step, _ = s.get_loops("out")
    s.transform_layout("out", "a", lambda i, j: (j // 2, i, j % 2))
    s.reorder(step, row)
    s.decompose_reduction("out", step)
    s.tensorize(s.get_loops("out_update")[1], "test.pmaddwd")
    return s.func


def test_both_written_operands_of_an_instruction_are_writes():
    """The atomic increment returns the old value and changes the counter."""
    old, counter = Buffer("old", (1,), "uint32"), Buffer("counter", (1,), "uint32")
    addresses = [Call("address_of", (BufferLoad(b, (IntImm(0),)),), "handle") for b in (old, counter)]
    call = Call("intrinsic.cuda.atom.inc.u32", (*addresses, IntImm(7)), "handle")
    assert [a.buffer for a in accesses_in(Evaluate(call)) if a.is_write] == [old, counter]


def test_users_register_instructions_of_their_own():
    """The semantics run in the interpreter, the code on the CPU; other targets raise an error with the name."""
    register_tensor_intrin(PAIRS, override=True)
    with pytest.raises(MLCError, match="there is a tensor intrinsic 'test.pmaddwd' already"):
        register_tensor_intrin(PAIRS)
    func = product_of_pairs()
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-300, 300, shape).astype(np.int16) for shape in ((8, 40), (40,)))
    stored = np.ascontiguousarray(a.reshape(8, 20, 2).transpose(1, 0, 2))
    interpreted, compiled = np.zeros(8, np.int32), np.zeros(8, np.int32)
    run_prim_func(func, stored, b, interpreted)
    build(func)["main"](stored, b, compiled)
    assert interpreted.tolist() == compiled.tolist() == (a.astype(np.int64) @ b).tolist()
    for target in ("cpu:x86-64", "cpu:neoverse-n1"):
        with pytest.raises(CodegenError, match="the target has no instruction 'test.pmaddwd': it needs avx2") as error:
            emit_llvm(func, target)
        assert error.value.where == (f"target {Target(target)}",)


def test_semantics_that_are_not_of_the_operands_are_refused():
    wide = replace(PAIRS, name="test.wide", operands=(Operand("acc", (16,), "int32"), *PAIRS.operands[1:]))
    message = r"tensor intrinsic 'test.wide': the semantics gives int32 \[8\]; the operand 'acc' is int32 \[16\]"
    with pytest.raises(MLCError, match=message):
        register_tensor_intrin(wide)
    assert "test.wide" not in tensor_intrins()
