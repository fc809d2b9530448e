"""``Schedule.tensorize`` with the instructions on tiles of a warp."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.script.printer import script
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule import Schedule, ScheduleError


def product(dtype: str = "float16") -> Schedule:
    """A matmul of 16 x 16 tiles, three along the reduction axis, with a separate init block."""
    a, b = (te.placeholder((3, 16, 16), dtype, name) for name in "ab")
    ko, k = te.reduce_axis(3, "ko"), te.reduce_axis(16, "k")
    acc = te.compute((16, 16), lambda i, j: te.sum(te.f32(a[ko, i, k]) * te.f32(b[ko, j, k]), axis=[ko, k]), "acc")
    s = Schedule(te.create_prim_func([a, b, acc]))
    i, j, outer, inner = s.get_loops("acc")
    s.reorder(outer, i, j, inner)
    s.decompose_reduction("acc", outer)
    return s


def test_a_product_of_tiles() -> None:
    s = product()
    s.tensorize(s.get_loops("acc_init")[0], "cuda.wmma.fill.f32")
    s.tensorize(s.get_loops("acc_update")[1], "cuda.wmma.mma.16x16x16.row.col.f16.f32")
    assert script(s.func).count("intrinsic.cuda.wmma") == 2
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(3, 16, 16)).astype(np.float16) for _ in range(2))
    acc = np.zeros((16, 16), np.float32)
    run_prim_func(s.func, a, b, acc)
    expected = sum(x.astype(np.float32) @ y.astype(np.float32).T for x, y in zip(a, b, strict=True))
    np.testing.assert_allclose(acc, expected, rtol=1e-5, atol=1e-5)


def test_another_order_or_dtype_is_refused() -> None:
    s = product()
    with pytest.raises(ScheduleError, match="row.row.f16.f32"):
        s.tensorize(s.get_loops("acc_update")[1], "cuda.wmma.mma.16x16x16.row.row.f16.f32")
    s = product("bfloat16")
    with pytest.raises(ScheduleError, match="bfloat16"):
        s.tensorize(s.get_loops("acc_update")[1], "cuda.wmma.mma.16x16x16.row.col.f16.f32")
