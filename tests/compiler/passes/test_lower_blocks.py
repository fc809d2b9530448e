"""LowerBlocks keeps the results of the golden cases and of randomly scheduled functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks, lower_blocks
from mlc_compiler.script import parse
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.verifier import verify
from tests.compiler.schedules.meaning import random_arguments
from tests.compiler.script.round_trip import check_round_trip

CASES = sorted(Path(__file__).parent.glob("lower_blocks/*.py"))


def check_same(before: PrimFunc, after: PrimFunc, sizes: dict[str, int]) -> None:
    """Asserts that both functions leave equal values in all their arguments."""
    arguments = random_arguments(before, sizes)
    results = []
    for func in (before, after):
        copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
        run_prim_func(func, *copies)
        results.append(copies)
    for want, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", CASES, ids=[c.stem for c in CASES])
def test_golden_cases_compute_the_same(case: Path) -> None:
    before = parse(case.read_text().partition("\n# ----\n")[0])
    after = LowerBlocks().run(before)
    verify(after)
    for name, func in before.of_type(PrimFunc).items():
        check_same(func, after[name], {"n": 8})


# -- random schedules ---------------------------------------------------------------------------------------------

ROWS, COLUMNS = 6, 10
STAGES: dict[str, Callable[[te.Tensor, te.Tensor], te.Tensor]] = {
    "twice": lambda a, b: te.compute((ROWS, COLUMNS), lambda i, j: a[i, j] * 2.0, name="twice"),
    "shifted": lambda a, b: te.compute((ROWS, COLUMNS), lambda i, j: a[i, te.max(j - 1, 0)], name="shifted"),
    "backwards": lambda a, b: te.compute((ROWS, COLUMNS), lambda i, j: a[ROWS - 1 - i, j], name="backwards"),
    "sum": lambda a, b: te.compute((ROWS, COLUMNS), lambda i, j: a[i, j] + b[i, j], name="sum"),
    "window": lambda a, b: _window(a),
    "scaled": lambda a, b: _scaled(a, b),
}


def _window(a: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(3, "k")
    return te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, te.min(j + k, COLUMNS - 1)], axis=k), name="window")


def _scaled(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(COLUMNS, "k")
    total = te.compute((ROWS,), lambda i: te.sum(a[i, k], axis=k), name="total")
    return te.compute((ROWS, COLUMNS), lambda i, j: b[i, j] + total[i], name="scaled")


def build(stages: list[tuple[str, int]]) -> PrimFunc:
    x = te.placeholder((ROWS, COLUMNS), name="x")
    values = [x]
    for name, back in stages:
        values.append(STAGES[name](values[-1], values[-1 - back % len(values)]))
    return te.create_prim_func([x, values[-1]])


Step = tuple[str, int, int, int]


def apply_step(s: Schedule, step: Step) -> None:
    """One schedule step on a block and a loop chosen by number."""
    kind, block_number, loop_number, factor = step
    names = s.get_blocks()
    name = names[block_number % len(names)]
    loops = s.get_loops(name)
    loop = loops[loop_number % len(loops)]
    actions: dict[str, Callable[[], Any]] = {
        "split": lambda: s.split(loop, [None, factor]),
        "fuse": lambda: s.fuse(*loops[:2]),
        "reorder": lambda: s.reorder(*reversed(loops)),
        "compute_at": lambda: s.compute_at(name, s.get_loops(names[-1])[loop_number % len(s.get_loops(names[-1]))]),
        "inline": lambda: s.compute_inline(name),
        "cache": lambda: s.cache_write(name, "local"),
        "decompose": lambda: s.decompose_reduction(name, loop),
        "parallel": lambda: s.parallel(loops[0]),
        "vectorize": lambda: s.vectorize(loops[-1]),
        "unroll": lambda: s.unroll(loop),
    }
    actions[kind]()


KINDS = "split fuse reorder compute_at compute_at inline cache decompose parallel vectorize unroll".split()
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 4), st.sampled_from([2, 3, 4])), max_size=8
)
GRAPHS = st.lists(st.tuples(st.sampled_from(sorted(STAGES)), st.integers(0, 3)), min_size=1, max_size=4)


@settings(max_examples=80)
@given(GRAPHS, STEPS)
def test_random_schedules_are_lowered_to_the_same(stages: list[tuple[str, int]], steps: list[Step]) -> None:
    s = Schedule(build(stages))
    for step in steps:
        try:
            apply_step(s, step)
        except ScheduleError:
            continue
    after = lower_blocks(s.func)
    verify(IRModule({"f": after}))
    check_round_trip(after)
    check_same(s.func, after, {})
