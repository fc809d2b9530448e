"""tensorize with statements registered by a user, in the interpreter and in native code."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.compat.tir import TensorIntrin
from mlc_compiler.interp import run_prim_func
from mlc_compiler.script import T
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_errors import MLCError, UnsupportedError

NAME = "test.mma_4x8x16"
M, N, K = 8, 24, 32


@T.prim_func
def desc(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4, 16), "float32", align=64, offset_factor=1)
    B = T.match_buffer(b, (8, 16), "float32", align=64, offset_factor=1)
    C = T.match_buffer(c, (4, 8), "float32", align=64, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:16], B[0:8, 0:16])
        T.writes(C[0:4, 0:8])
        for i, j, k in T.grid(4, 8, 16):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


@T.prim_func
def impl(a: T.handle, b: T.handle, c: T.handle) -> None:
    """The instruction's implementation: columns are SIMD lanes."""
    A = T.match_buffer(a, (4, 16), "float32", align=64, offset_factor=1)
    B = T.match_buffer(b, (8, 16), "float32", align=64, offset_factor=1)
    C = T.match_buffer(c, (4, 8), "float32", align=64, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:16], B[0:8, 0:16])
        T.writes(C[0:4, 0:8])
        for k in T.serial(16):
            for i in T.unroll(4):
                for j in T.vectorized(8):
                    with T.block("lanes"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


@T.prim_func
def wider(A: T.Buffer((4, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((4, 16), "float32")) -> None:
    C[0, 0] = A[0, 0] + B[0, 0]


@pytest.fixture(autouse=True)
def registered() -> None:
    TensorIntrin.register(NAME, desc, impl, override=True)


def batched_product(transposed: bool = False) -> Schedule:
    """out[b, i, j] = sum of x[b, i, k] * w[j, k], in tiles of the instruction; transposed: w[k, j]."""
    x, w = te.placeholder((2, M, K), "float32", "x"), te.placeholder((K, N) if transposed else (N, K), "float32", "w")
    k = te.reduce_axis(K, "k")
    out = te.compute(
        (2, M, N), lambda b, i, j: te.sum(x[b, i, k] * (w[k, j] if transposed else w[j, k]), axis=k), name="out"
    )
    s = Schedule(te.create_prim_func([x, w, out]))
    _, i, j, r = s.get_loops("out")
    (i0, i1), (j0, j1), (k0, k1) = (s.split(loop, (None, size)) for loop, size in ((i, 4), (j, 8), (r, 16)))
    s.reorder(i0, j0, k0, i1, j1, k1)
    s.decompose_reduction("out", k0)
    return s


def test_tiles_are_computed_by_the_implementation() -> None:
    s = batched_product()
    s.tensorize(s.get_loops("out_update")[4], NAME)
    text = s.func.script()
    assert 'T.block_attr({"tensorized": "test.mma_4x8x16"})' in text and "T.vectorized(8)" in text
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, M, K)).astype(np.float32), rng.standard_normal((N, K)).astype(np.float32)
    interpreted, compiled = np.zeros((2, M, N), np.float32), np.zeros((2, M, N), np.float32)
    run_prim_func(s.func, x, w, interpreted)
    build(s.func)["main"](x, w, compiled)
    np.testing.assert_allclose(interpreted, x @ w.T, rtol=0, atol=1e-5)
    np.testing.assert_allclose(compiled, x @ w.T, rtol=0, atol=1e-5)


def test_two_blocks_take_the_same_implementation() -> None:
    x = te.placeholder((4, 16), "float32", "x")
    k, r = te.reduce_axis(16, "k"), te.reduce_axis(16, "r")
    w, v = (te.placeholder((8, 16), "float32", name) for name in "wv")
    first = te.compute((4, 8), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="first")
    second = te.compute((4, 8), lambda i, j: te.sum(x[i, r] * v[j, r], axis=r), name="second")
    s = Schedule(te.create_prim_func([x, w, v, first, second]))
    for block in ("first", "second"):
        s.decompose_reduction(block, s.get_loops(block)[0])
        s.tensorize(s.get_loops(f"{block}_update")[0], NAME)
    arrays = [
        np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((4, 16), (8, 16), (8, 16))
    ]
    outs = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    build(s.func)["main"](*arrays, *outs)
    for out, weight in zip(outs, arrays[1:], strict=True):
        np.testing.assert_allclose(out, arrays[0] @ weight.T, rtol=0, atol=1e-5)


def test_other_accesses_are_refused() -> None:
    s = batched_product(transposed=True)
    with pytest.raises(ScheduleError, match="'w' is not accessed like operand 'B'"):
        s.tensorize(s.get_loops("out_update")[4], NAME)


def test_other_extents_are_refused() -> None:
    s = batched_product()
    with pytest.raises(ScheduleError, match=r"its loops have extents \[2, 4, 8, 16\]; the instruction's \[4, 8, 16\]"):
        s.tensorize(s.get_loops("out_update")[3], NAME)


def test_registering_checks_names_and_parameters() -> None:
    with pytest.raises(MLCError, match="there is a tensor intrinsic 'test.mma_4x8x16' already"):
        TensorIntrin.register(NAME, desc, impl)
    with pytest.raises(
        MLCError, match=r"impl takes float32 \[4, 16\], float32 \[16, 16\], float32 \[4, 16\]; expected"
    ):
        TensorIntrin.register("test.wider", desc, wider)
    assert TensorIntrin.get("test.wider", allow_missing=True) is None
    with pytest.raises(UnsupportedError, match="no instruction 'test.wider' is registered"):
        TensorIntrin.get("test.wider")
