"""transform_layout keeps results."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.passes.lower_blocks import lower_blocks
from mlc_compiler.tir import te
from mlc_compiler.tir.index_map import IndexMap
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.tir.schedule.trace import Trace


def product() -> PrimFunc:
    """out = relu(x @ w.T) for x [3, 20], w [10, 20]."""
    x, w = te.placeholder((3, 20), "float32", "x"), te.placeholder((10, 20), "float32", "w")
    k = te.reduce_axis(20, "k")
    y = te.compute((3, 10), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    return te.create_prim_func([x, w, te.compute((3, 10), lambda i, j: te.max(y[i, j], te.f32(0)), name="out")])


def check(func: PrimFunc) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 20)).astype(np.float32), rng.standard_normal((10, 20)).astype(np.float32)
    layouts = func.attrs.get("layouts", {})
    stored = [layouts[str(i)].pack(a, np.nan) if str(i) in layouts else a for i, a in enumerate((x, w))]
    out = np.zeros((3, 10), np.float32)
    for version in (func, lower_blocks(func)):
        run_prim_func(version, *stored, out)
        np.testing.assert_allclose(out, np.maximum(x @ w.T, 0), rtol=1e-5)


def test_a_parameter_and_an_intermediate_buffer() -> None:
    s = Schedule(product())
    s.transform_layout("y", "w", lambda n, k: (n // 4, k // 2, n % 4, k % 2))
    s.transform_layout("y", ("write", 0), lambda i, j: (j, i))
    assert [b.value for b in s.func.buffers[1].shape] == [3, 10, 4, 2]
    assert [size.value for size in s.block("y").writes[0].buffer.shape] == [10, 3]
    assert s.func.attrs["layouts"] == {"1": IndexMap.parse("lambda n, k: (n // 4, k // 2, n % 4, k % 2)")}
    check(s.func)


def test_the_trace_repeats_it() -> None:
    s = Schedule(product())
    s.transform_layout("y", ("read", 0), lambda i, k: (k, i))
    text = 'sch.transform_layout("y", buffer=["read", 0], index_map="lambda i0, i1: (i1, i0)")'
    assert str(s.trace) == text
    again = Schedule(product())
    Trace.from_json(s.trace.as_json()).apply_to_schedule(again)
    assert again.func.attrs["layouts"] == s.func.attrs["layouts"]
    check(again.func)


@pytest.mark.parametrize(
    ("buffer", "index_map", "message"),
    [
        ("z", lambda i, j: (j, i), "block 'y' accesses no buffer 'z'"),
        (("read", 2), lambda i, j: (j, i), r"accesses no buffer \('read', 2\)"),
        ("w", lambda i: (i,), "is for 1 axes; got 2"),
        ("w", lambda i, j: (i, j * 2), "has no inverse"),
        ("w", "lambda i, j: (i,", "expected lambda"),
    ],
)
def test_refusals(buffer, index_map, message: str) -> None:
    s = Schedule(product())
    with pytest.raises(ScheduleError, match=message):
        s.transform_layout("y", buffer, index_map)
    check(s.func)


def test_only_one_layout_each() -> None:
    s = Schedule(product())
    s.transform_layout("y", "w", lambda n, k: (k, n))
    with pytest.raises(ScheduleError, match="'w' has another layout already"):
        s.transform_layout("y", "w", lambda n, k: (k, n))
