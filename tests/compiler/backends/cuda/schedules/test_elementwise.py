"""Element-wise functions on GPUs: one kernel, vectorized if rows are aligned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.ir.visitor import walk
from mlc_compiler.relax.ops.linear import dequantize
from mlc_compiler.relax.ops.manipulate import permute_dims
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import VECTORIZED, Allocate, For, PrimFunc
from tests.compiler.backends.cuda.kernels import main
from tests.compiler.backends.cuda.scheduled import check, kernels, launches, rule_of


def _values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(dtype)


def _silu_times(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    silu = te.elementwise("silu", lambda v: v * te.sigmoid(v), x)
    return te.elementwise("multiply", lambda a, b: te.cast(a * te.cast(b, x.dtype), y.dtype), silu, y)


def _width(func: PrimFunc) -> int:
    lanes = [n for n in walk(main(kernels(func)).body) if isinstance(n, For) and n.kind == VECTORIZED]
    return lanes[0].extent.value if lanes else 1  # type: ignore[attr-defined]


@settings(max_examples=8)
@given(rows=st.integers(1, 5), length=st.sampled_from([1, 3, 8, 20, 64, 100, 513]), half=st.booleans())
def test_a_chain(rows: int, length: int, half: bool) -> None:
    dtype = "float16" if half else "float32"
    x, y = (te.placeholder((te.var("n"), length), d, name) for d, name in (("float32", "x"), (dtype, "y")))
    y = te.placeholder((x.shape[0], length), dtype, "y")
    arrays = _values((rows, length), "float32"), _values((rows, length), dtype, 1)
    check([x, y], _silu_times(x, y), *arrays, tolerance=1e-3)


@pytest.mark.parametrize(("length", "dtype", "width"), [(4096, "float16", 8), (4096, "float32", 4), (12, "float16", 4)])
def test_vectors_of_16_bytes(length: int, dtype: str, width: int) -> None:
    x = te.placeholder((te.var("n"), length), dtype, "x")
    func = te.create_prim_func([x, te.elementwise("double", lambda v: v + v, x)])
    assert (_width(func), launches(func), rule_of(func)) == (width, 1, "Elementwise")


def test_dequantized_rows_of_an_embedding() -> None:
    ids = te.placeholder((te.var("n"),), "int32", "ids")
    q, scale = te.placeholder((50, 8), "uint32", "q"), te.placeholder((50, 2), "float16", "scale")
    table = dequantize.te(q, scale, bits=4, group=32, k=64, dtype="float16")
    rows = te.compute((ids.shape[0], 64), lambda i, j: table[te.cast(ids[i], "int64"), j], name="take")
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2**32, (50, 8), dtype=np.uint32)
    check([ids, q, scale], rows, np.array([3, 49, 0], "int32"), codes, rng.random((50, 2)).astype("float16"))
    func = te.create_prim_func([ids, q, scale, rows])
    assert (_width(func), launches(func)) == (8, 1)


@settings(max_examples=6)
@given(rows=st.sampled_from([1, 7, 32, 64]), columns=st.sampled_from([5, 32, 96]))
def test_transposition(rows: int, columns: int) -> None:
    x = te.placeholder((2, rows, columns), "float32", "x")
    check([x], permute_dims.te(x, axes=[0, 2, 1]), _values((2, rows, columns), "float32"))


def test_transpositions_go_through_shared_memory() -> None:
    """Global memory is read and written in rows; rows in shared memory begin in different banks."""
    x = te.placeholder((2, 64, 96), "float16", "x")
    nest = main(kernels(te.create_prim_func([x, permute_dims.te(x, axes=[0, 2, 1])]))).body
    (shared,) = [n.buffer for n in walk(nest) if isinstance(n, Allocate)]
    assert (shared.scope, [size.value for size in shared.shape]) == ("shared", [1, 32, 34])
