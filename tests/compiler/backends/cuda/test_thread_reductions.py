"""Reductions across threads: sums and extrema of every width, over lanes, warps and two thread axes."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.backends.cuda.passes.thread_reductions import ThreadReductions
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_errors import MLCError
from tests.compiler.backends.cuda.kernels import syncs
from tests.compiler.backends.cuda.races import lowered, run

OPERATIONS = {"sum": te.sum, "min": te.min, "max": te.max}


def _rows(rows: int, length: int, dtype: str, operation: str = "sum") -> Schedule:
    """A reduction of the rows of a matrix into a local buffer, and its copy to the result."""
    x = te.placeholder((rows, length), dtype, "x")
    k = te.reduce_axis(length, "k")
    result = te.compute((rows,), lambda i: OPERATIONS[operation](x[i, k], axis=k), name="total")
    s = Schedule(te.create_prim_func([x, result]))
    s.cache_write("total", "local")
    return s


def _bound(rows: int, length: int, dtype: str, operation: str, threads: int, rows_together: int = 1) -> IRModule:
    s = _rows(rows, length, dtype, operation)
    (copy,) = [b for b in s.get_blocks() if b != "total"]
    block, own = s.split(s.get_loops(copy)[0], [None, rows_together])
    s.compute_at("total", own)
    step, thread = s.split(s.get_loops("total")[-1], [None, threads])
    s.reorder(thread, step)
    s.bind(thread, "threadIdx.x")
    s.bind(own, "threadIdx.y")
    s.bind(block, "blockIdx.x")
    return s.mod


@pytest.mark.parametrize("threads", [8, 32, 128])  # 8: of four rows in a warp
@pytest.mark.parametrize(
    ("dtype", "operation"), [("float32", "sum"), ("int64", "min"), ("float64", "max"), ("int8", "max")]
)
def test_results(dtype: str, operation: str, threads: int) -> None:
    x = np.random.default_rng(1).normal(0, 30, (4, 200)).astype(dtype)
    if dtype == "int64":
        x *= 1 << 40
    got = run(lowered(_bound(4, 200, dtype, operation, threads, 4 if threads == 8 else 1)), x, np.zeros(4, dtype))[-1]
    np.testing.assert_allclose(got, getattr(x, operation)(1), rtol=1e-5)


def test_rows_on_a_second_axis_of_threads() -> None:
    x = np.random.default_rng(1).normal(size=(8, 128)).astype("float32")
    mod = lowered(_bound(8, 128, "float32", "sum", 64, rows_together=4))
    np.testing.assert_allclose(run(mod, x, np.zeros(8, "float32"))[-1], x.sum(1), rtol=1e-4)


@pytest.mark.parametrize(("threads", "barriers"), [(32, 0), (128, 1)])
def test_barriers(threads: int, barriers: int) -> None:
    """Lanes of one warp need none."""
    assert syncs(lowered(_bound(2, 256, "float32", "sum", threads))) == barriers


def test_a_number_of_threads_that_is_no_power_of_two() -> None:
    with pytest.raises(MLCError, match=r"reduces over 24 threads of threadIdx.x; expected all threads of threadIdx.x"):
        ThreadReductions().run(LowerBlocks().run(_bound(2, 240, "float32", "sum", 24)))


def test_only_local_accumulators_are_reduced_by_threads() -> None:
    x, k = te.placeholder((4, 64), "float32", "x"), te.reduce_axis(64, "k")
    s = Schedule(te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")]))
    with pytest.raises(ScheduleError, match="carries the reduction"):
        s.bind(s.get_loops("total")[1], "threadIdx.x")
