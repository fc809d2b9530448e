"""pad_einsum rounds extents up and keeps results; it rejects functions whose result padding with zeros would change."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.script import parse
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.verifier import verify

PADDED = """
@T.prim_func(private=True)
def main(A: T.Buffer((5, 7), "float32"), B: T.Buffer((6, 7), "float32"), D: T.Buffer((5, 6), "float32")):
    T.func_attr({"tir.noalias": True, "num_outputs": 1})
    C = T.alloc_buffer((5, 6), "float32")
    A_pad = T.alloc_buffer((8, 8), "float32")
    B_pad = T.alloc_buffer((6, 8), "float32")
    C_pad = T.alloc_buffer((8, 6), "float32")
    for i0, i1 in T.grid(8, 8):
        with T.block("A_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            A_pad[v0, v1] = T.if_then_else(v0 < 5 and v1 < 7, A[v0, v1], T.float32(0.0))
    for i0, i1 in T.grid(6, 8):
        with T.block("B_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            B_pad[v0, v1] = T.if_then_else(v1 < 7, B[v0, v1], T.float32(0.0))
    for i, j, k in T.grid(8, 6, 8):
        with T.block("C"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C_pad[v_i, v_j] = T.float32(0.0)
            C_pad[v_i, v_j] = C_pad[v_i, v_j] + A_pad[v_i, v_k] * B_pad[v_j, v_k]
    for i0, i1 in T.grid(5, 6):
        with T.block("C_pad"):
            v0, v1 = T.axis.remap("SS", [i0, i1])
            C[v0, v1] = C_pad[v0, v1]
    for i, j in T.grid(5, 6):
        with T.block("D"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            D[v_i, v_j] = C[v_i, v_j] + T.float32(1.0)
"""


def product() -> PrimFunc:
    a, b = te.placeholder((5, 7), name="A"), te.placeholder((6, 7), name="B")
    k = te.reduce_axis(7, "k")
    c = te.compute((5, 6), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    d = te.compute((5, 6), lambda i, j: c[i, j] + 1.0, name="D")
    return te.create_prim_func([a, b, d])


def padded(func: PrimFunc, block: str, padding: list[int]) -> PrimFunc:
    s = Schedule(func)
    s.pad_einsum(block, padding)
    verify(s.func)
    return s.func


def assert_same(func: PrimFunc, changed: PrimFunc, *args: np.ndarray) -> None:
    """Assert that both functions compute the same result, their last argument."""
    expected = args[-1].copy()
    run_prim_func(func, *args[:-1], expected)
    for run in (run_prim_func, lambda f, *args: build(f)["main"](*args)):
        result = np.full_like(expected, 99)
        run(changed, *args[:-1], result)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_operands_are_padded_and_the_result_is_copied_back():
    func = padded(product(), "C", [4, 3, 2])
    assert first_difference(func, parse(PADDED)) is None
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, 7), np.float32) for rows in (5, 6))
    a[2, 3] = np.inf
    assert_same(product(), func, a, b, np.zeros((5, 6), np.float32))


def test_extents_that_are_multiples_stay():
    assert first_difference(padded(product(), "C", [5, 3, 1]), product()) is None


SYMBOLIC = """
@T.prim_func
def main(var_A: T.handle, B: T.Buffer((2, 3), "int8"), var_C: T.handle):
    n = T.int64()
    A = T.match_buffer(var_A, (n, 3), "int8")
    C = T.match_buffer(var_C, (n, n), "int32")
    for i, j, k in T.grid(n, n, 3):
        with T.block("C"):
            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[v_i, v_j] = 0
            C[v_i, v_j] = C[v_i, v_j] + T.int32(A[v_i, v_k]) * T.int32(A[v_j, v_k]) * T.int32(B[1, v_k])
"""


def test_symbolic_extents_constant_indices_and_an_operand_read_twice():
    func = parse(SYMBOLIC)
    changed = padded(func, "C", [4, 1, 2])
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 3), (2, 3)))
    assert_same(func, changed, a, b, np.zeros((5, 5), np.int32))
    for text in ("A_pad_1 = T.alloc_buffer((n, 4)", "B_pad = T.alloc_buffer((2, 4)", "B_pad[1, v0] ="):
        assert text in changed.script()


def computed(value: str, init: str = "T.float32(0)", index: str = "v_i") -> PrimFunc:
    return parse(
        f"""
@T.prim_func
def main(A: T.Buffer((5, 7), "float32"), B: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")):
    for i, k in T.grid(5, 7):
        with T.block("C"):
            v_i, v_k = T.axis.remap("SR", [i, k])
            with T.init():
                C[{index}] = {init}
            C[{index}] = {value}
"""
    )


REFUSED = {
    "infinite factors": (
        computed("C[v_i] + A[v_i, v_k] * B[v_i]"),
        [1, 2],
        "beyond the extent of 'v_k' would contribute",
    ),
    "a summand": (computed("C[v_i] + (A[v_i, v_k] + B[v_i])"), [1, 2], "beyond the extent of 'v_k' would contribute"),
    "maximum": (computed("T.max(C[v_i], A[v_i, v_k])"), [1, 2], "beyond the extent of 'v_k' would contribute"),
    "exp": (computed("C[v_i] + T.exp(A[v_i, v_k])"), [4, 1], "computes more than sums and products"),
    "window": (computed("C[v_i] + A[v_i, v_k % 3]"), [4, 1], "an index of 'A' is neither"),
    "start": (computed("C[v_i] + A[v_i, v_k]", init="B[v_i]"), [4, 1], "initialises 'C' with elements of buffers"),
    "one result": (computed("C[0] + A[v_i, v_k]", index="0"), [4, 1], "indices of 'C' are not the spatial variables"),
    "too few numbers": (
        product(),
        [4, 4],
        r"got padding \[4, 4\]; expected a positive number for each of v_i, v_j, v_k",
    ),
    "zero": (product(), [4, 4, 0], "expected a positive number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    func, padding, why = REFUSED[name]
    with pytest.raises(ScheduleError, match=why):
        Schedule(func).pad_einsum("C", padding)


@pytest.mark.parametrize("value", ["T.max(C[v_i], A[v_i, v_k])", "C[v_i] + A[v_i, v_k] * B[v_i]"])
def test_spatial_extents_grow_where_reductions_may_not(value: str):
    func, rng = computed(value), np.random.default_rng(2)
    a, b = rng.standard_normal((5, 7), np.float32), rng.standard_normal(5, np.float32)
    assert_same(func, padded(func, "C", [4, 1]), a, b, np.zeros(5, np.float32))


def test_split_loops_are_refused():
    s = Schedule(product())
    s.split(s.get_loops("C")[0], [None, 2])
    with pytest.raises(ScheduleError, match="not one loop of its own, of one thread, for each of its variables"):
        s.pad_einsum("C", [4, 1, 1])
