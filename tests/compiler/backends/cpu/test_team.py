"""The worker team: loops whose sizes come from memory, statements between loops, more threads than cores."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.script import parse
from mlc_runtime.library import Library

ROUNDS = 200
THREADS = (1, 2, 3, 16)

MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def steps(x: T.Buffer((64,), "int64"), sizes: T.Buffer((3,), "int64"), y: T.Buffer((64,), "int64"),
              z: T.Buffer((64,), "int64")):
        T.func_attr({"tir.is_scheduled": True})
        for i in T.parallel(64):
            y[i] = x[i] + 1
        sizes[0] = y[1] % 32 + 1
        for i in T.parallel(sizes[0]):
            y[i] = y[i] * 2
        for step in range(sizes[1]):
            for i in T.parallel(63):
                z[i] = y[i] + y[i + 1]
            for i in T.parallel(63):
                y[i] = z[i] - step
        if sizes[2] > 0:
            for i in T.parallel(64):
                y[i] = y[i] + 5
        for step in range(4):
            for i in T.parallel(63, annotations={"schedule": "dynamic"}):
                z[i + 1] = y[i] * 3 + step
            for i in T.parallel(64):
                y[i] = z[i] % 1000
        for i in T.parallel(sizes[sizes[1]]):
            y[i] = y[i] + 7
        sizes[0] = y[0]
"""


def reference(x: np.ndarray, sizes: np.ndarray, z: np.ndarray) -> np.ndarray:
    y = x + 1
    sizes[0] = y[1] % 32 + 1
    y[: sizes[0]] *= 2
    for step in range(sizes[1]):
        z[:63] = y[:63] + y[1:]
        y[:63] = z[:63] - step
    if sizes[2] > 0:
        y += 5
    for step in range(4):
        z[1:] = y[:63] * 3 + step
        y = z % 1000
    y[: sizes[sizes[1]]] += 7
    sizes[0] = y[0]
    return y


@pytest.fixture(scope="module")
def library() -> Library:
    return build(parse(MODULE))


@pytest.mark.parametrize("threads", THREADS)
def test_every_call_sees_the_results_of_the_loops_before(library: Library, threads: int):
    rng = np.random.default_rng(threads)
    loaded = Library(library.path, threads)
    for _ in range(ROUNDS):
        x = rng.integers(0, 1000, 64)
        sizes = np.array([0, rng.integers(1, 3), rng.integers(0, 2)])
        expected_sizes, expected_z = sizes.copy(), np.zeros(64, np.int64)
        expected = reference(x, expected_sizes, expected_z)
        y, z = np.zeros(64, np.int64), np.zeros(64, np.int64)
        loaded["steps"](x, sizes, y, z)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(sizes, expected_sizes)
        np.testing.assert_array_equal(z, expected_z)
