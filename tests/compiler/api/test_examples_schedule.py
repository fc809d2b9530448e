"""Scheduling of a matrix product with ReLU: the text after every step, and the result of every compiled step."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import IRModule, Schedule, T, build, emit_asm, emit_llvm, parse, structural_equal, to_script
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.tir.nodes import PrimFunc


@T.prim_func
def mm_relu(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    Y = T.alloc_buffer((128, 128), "float32")
    for i, j, k in T.grid(128, 128, 128):
        with T.block("Y"):
            vi = T.axis.spatial(128, i)
            vj = T.axis.spatial(128, j)
            vk = T.axis.reduce(128, k)
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(128, 128):
        with T.block("C"):
            vi = T.axis.spatial(128, i)
            vj = T.axis.spatial(128, j)
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


HEAD = """
@T.prim_func
def mm_relu(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    # with T.block("root"):
    Y = T.alloc_buffer((128, 128), "float32")
"""

UPDATE = """        with T.block("Y"):
            vi = T.axis.spatial(128, i)
            vj = T.axis.spatial(128, j_0 * 4 + j_1)
            vk = T.axis.reduce(128, k)
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(Y[vi, vj])
            with T.init():
                Y[vi, vj] = T.float32(0.0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
"""

RELU = """    for i, j in T.grid(128, 128):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(Y[vi, vj])
            T.writes(C[vi, vj])
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0.0))
"""

PLAIN = """    for i, j, k in T.grid(128, 128, 128):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(Y[vi, vj])
            with T.init():
                Y[vi, vj] = T.float32(0.0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
"""

RELU_INSIDE = """        for ax0 in range(4):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j_0 * 4 + ax0)
                T.reads(Y[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0.0))
"""

DECOMPOSED = """    for i, j_0 in T.grid(128, 32):
        for j_1_init in range(4):
            with T.block("Y_init"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j_0 * 4 + j_1_init)
                T.reads()
                T.writes(Y[vi, vj])
                Y[vi, vj] = T.float32(0.0)
        for k, j_1 in T.grid(128, 4):
            with T.block("Y_update"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j_0 * 4 + j_1)
                vk = T.axis.reduce(128, k)
                T.reads(Y[vi, vj], A[vi, vk], B[vk, vj])
                T.writes(Y[vi, vj])
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
"""

TRACE = """b0 = sch.get_block("Y")
l1, l2, l3 = sch.get_loops(b0)
l4, l5 = sch.split(l2, factors=[None, 4])
sch.reorder(l4, l3, l5)
b6 = sch.get_block("C")
sch.reverse_compute_at(b6, l4)
b7 = sch.decompose_reduction(b0, l3)"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def printed(func: PrimFunc) -> str:
    """The function's text without the import line."""
    return to_script(func).split("\n", 1)[1].rstrip("\n") + "\n"


def walk() -> list[tuple[PrimFunc, str]]:
    """The function after every step, with the expected text."""
    s = Schedule(mm_relu)
    steps = [(s.func, HEAD + PLAIN + RELU)]
    y = s.get_block("Y")
    _, j, k = s.get_loops(y)
    j_0, j_1 = s.split(j, factors=[None, 4])
    steps.append((s.func, HEAD + "    for i, j_0, j_1, k in T.grid(128, 32, 4, 128):\n" + UPDATE + RELU))
    s.reorder(j_0, k, j_1)
    steps.append((s.func, HEAD + "    for i, j_0, k, j_1 in T.grid(128, 32, 128, 4):\n" + UPDATE + RELU))
    s.reverse_compute_at(s.get_block("C"), j_0)
    inside = "    for i, j_0 in T.grid(128, 32):\n        for k, j_1 in T.grid(128, 4):\n" + indented(UPDATE)
    steps.append((s.func, HEAD + inside + RELU_INSIDE))
    s.decompose_reduction(y, k)
    steps.append((s.func, HEAD + DECOMPOSED + RELU_INSIDE))
    assert str(s.trace) == TRACE
    return steps


STEPS = walk()
IDS = ("written", "split", "reorder", "reverse_compute_at", "decompose_reduction")


@pytest.mark.parametrize(("func", "text"), STEPS, ids=IDS)
def test_the_text_after_each_step(func: PrimFunc, text: str):
    assert printed(func) == text
    assert first_difference(parse(text)["mm_relu"], func) is None


def test_the_numbers_after_each_step():
    a, b = np.random.default_rng(0).normal(0, 1, (2, 128, 128)).astype(np.float32)
    lib = build(IRModule({name: f.with_attr("global_symbol", name) for name, (f, _) in zip(IDS, STEPS)}))
    assert list(lib.functions) == list(IDS)
    for name in IDS:
        c = np.full((128, 128), np.nan, np.float32)
        lib[name](a, b, c)
        np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
        assert lib.time_evaluator(name, number=1, repeat=2)(a, b, c).mean > 0


def schedule_mm(func: PrimFunc, factor: int) -> Schedule:
    """A schedule of the product with a given extent of the inner loop."""
    s = Schedule(func)
    block = s.get_block("Y")
    i, j, k = s.get_loops(block)
    j_0, j_1 = s.split(j, factors=[None, factor])
    s.reorder(i, j_0, k, j_1)
    s.decompose_reduction(block, k)
    return s


@pytest.mark.parametrize("factor", [1, 8, 48, 128])
def test_a_schedule_is_a_function_of_its_parameters(factor: int):
    one, other = schedule_mm(mm_relu, factor), schedule_mm(mm_relu, factor)
    assert one.trace == other.trace and structural_equal(one.func, other.func)
    assert not structural_equal(one.func, schedule_mm(mm_relu, 16).func)
    a, b = np.random.default_rng(1).normal(0, 1, (2, 128, 128)).astype(np.float32)
    c = np.empty_like(a)
    build(one.func)["mm_relu"](a, b, c)
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


def test_user_scheduled_loops_are_compiled_unchanged():
    s = schedule_mm(mm_relu, 16)
    s.vectorize(s.get_loops("Y_update")[-1])
    code = emit_llvm(s.func, "cpu:x86-64-v4")
    assert "<16 x float>" in code and "define internal" in code
    assembly = emit_asm(s.func, "cpu:x86-64-v4")
    assert "vfmadd" in assembly and "%zmm" in assembly
    assert "%zmm" not in emit_asm(s.func, "cpu:x86-64-v3")
