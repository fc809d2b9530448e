"""factor_reduction keeps the sum and moves group factors out of the inner sum."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.script import parse, script
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule import Schedule, ScheduleError


def scaled_dot(rows: int = 3, length: int = 24, group: int = 8) -> Schedule:
    x = te.placeholder((length,), "float32", "x")
    w = te.placeholder((rows, length), "float32", "w")
    scale = te.placeholder((rows, length // group), "float32", "scale")
    k = te.reduce_axis(length, "k")
    out = te.compute((rows,), lambda i: te.sum(x[k] * (w[i, k] * scale[i, k // group]), axis=k), name="out")
    return Schedule(te.create_prim_func([x, w, scale, out]))


def run(s: Schedule) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w, scale = (rng.standard_normal(shape).astype(np.float32) for shape in ((24,), (3, 24), (3, 3)))
    out = np.zeros(3, np.float32)
    run_prim_func(s.func, x, w, scale, out)
    return out, (w * np.repeat(scale, 8, axis=1)) @ x


def test_the_sum_stays_the_same_and_the_scale_moves_out():
    s = scaled_dot()
    inner = s.factor_reduction("out", 8)
    assert s.get_blocks() == [inner, "out"]
    text = script(s.func)
    assert "out_partial[v_i, v_g] = out_partial[v_i, v_g] + x[v_g * 8 + v_j] * w[v_i, v_g * 8 + v_j]" in text
    assert "out[v_i] = out[v_i] + out_partial[v_i, v_g] * scale[v_i, v_g]" in text
    assert structural_equal(parse(text), s.func)
    out, expected = run(s)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_it_works_within_moved_and_cut_loops():
    s = scaled_dot()
    inner = s.factor_reduction("out", 8)
    row, group = s.get_loops("out")
    s.reorder(group, row)
    s.decompose_reduction("out", group)
    s.compute_at(inner, group)
    out, expected = run(s)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_a_group_that_does_not_divide_is_refused():
    with pytest.raises(ScheduleError, match="7 divides"):
        scaled_dot().factor_reduction("out", 7)


def test_a_cut_reduction_is_refused():
    s = scaled_dot()
    s.split(s.get_loops("out")[-1], [None, 8])
    with pytest.raises(ScheduleError, match="use it before split"):
        s.factor_reduction("out", 8)


def test_other_reductions_are_refused():
    x = te.placeholder((4, 8), "float32", "x")
    k = te.reduce_axis(8, "k")
    s = Schedule(te.create_prim_func([x, te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="out")]))
    with pytest.raises(ScheduleError, match="not a sum"):
        s.factor_reduction("out", 8)
