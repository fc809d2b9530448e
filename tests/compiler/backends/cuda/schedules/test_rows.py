"""Row-wise functions on GPUs: norms, softmax, sums and argmax, in one kernel each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.relax.ops.normalize import layer_norm, log_softmax, rms_norm, softmax
from mlc_compiler.relax.ops.reduce import argmax, argmin, max, mean, sum, variance
from mlc_compiler.relax.ops.sampling import softmax_with_temperature
from mlc_compiler.tir import te
from tests.compiler.backends.cuda.scheduled import check, launches, rule_of

UNARY = {
    "softmax": softmax.te,
    "log_softmax": log_softmax.te,
    "sum": lambda x: sum.te(x, axis=-1),
    "max": lambda x: max.te(x, axis=-1, keepdims=True),
    "mean": lambda x: mean.te(x, axis=-1),
    "variance": lambda x: variance.te(x, axis=(-1,)),
    "argmax": argmax.te,
    "argmin": argmin.te,
}
LENGTHS = st.one_of(st.integers(1, 100), st.sampled_from([128, 256, 1000, 2048, 4096, 5003]))


def _rows(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(dtype)


@settings(max_examples=14)
@given(name=st.sampled_from(sorted(UNARY)), rows=st.integers(1, 3), length=LENGTHS, dtype=st.sampled_from(["f4", "f2"]))
def test_rows(name: str, rows: int, length: int, dtype: str) -> None:
    x = te.placeholder((te.var("n"), length), np.dtype(dtype).name, "x")
    result = UNARY[name](x)
    check([x], result, _rows((rows, length), dtype), tolerance=2e-3 if dtype == "f2" else 1e-4)


@settings(max_examples=7)
@given(rows=st.integers(1, 3), length=LENGTHS, dtype=st.sampled_from(["float32", "float16"]), centered=st.booleans())
def test_norms(rows: int, length: int, dtype: str, centered: bool) -> None:
    x, w = te.placeholder((1, te.var("n"), length), dtype, "x"), te.placeholder((length,), dtype, "w")
    result = layer_norm.te(x, w, w) if centered else rms_norm.te(x, w)
    arrays = _rows((1, rows, length), dtype), _rows((length,), dtype, 1)
    check([x, w], result, *arrays, tolerance=4e-3 if dtype == "float16" else 1e-4)


@pytest.mark.parametrize("name", UNARY)
def test_one_kernel(name: str) -> None:
    x = te.placeholder((te.var("n"), 4096), "float16", "x")
    func = te.create_prim_func([x, UNARY[name](x)])
    assert rule_of(func) == "RowReduction"
    assert launches(func) == 1


@pytest.mark.parametrize("length", [61, 131, 1003])
def test_rows_in_shared_memory_that_no_vector_divides(length: int) -> None:
    arrays = _rows((3, length), "float32"), np.array([0.0, 0.7, 1.3], np.float32)
    n = te.var("n")
    x, t = te.placeholder((n, length), "float32", "x"), te.placeholder((n,), "float32", "t")
    check([x, t], softmax_with_temperature.te(x, t), *arrays, tolerance=1e-4)
