"""Schedule spaces: candidates follow from decisions, and each keeps the function's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from mlc_compiler.backends.cpu.schedules import CPU_RULES
from mlc_compiler.ir import expr as ir
from mlc_compiler.ir.visitor import walk
from mlc_compiler.relax.ops import get_operator
from mlc_compiler.schedules.rule import constant_extent
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PARALLEL, VECTORIZED, BufferLoad, For, PrimFunc
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.tuning.cpu_space import CpuSketches
from mlc_compiler.tuning.guided import GuidedSchedule
from mlc_compiler.tuning.measure import layouts_of
from mlc_compiler.tuning.program import default_space
from mlc_compiler.tuning.space import AnyOf, Candidate, RuleSpace, ScheduleFn, Space
from mlc_compiler.tuning.strategies import History
from mlc_compiler.tuning.task import Task
from mlc_errors import MLCError
from tests.compiler.schedules.meaning import AVX2, lowered, random_arguments, run
from tests.compiler.schedules.test_matmul import quantized
from tests.compiler.schedules.test_quantized_matmuls import rewritten
from tests.compiler.tuning.spaces import product, scaled, tiled


def softmax() -> PrimFunc:
    x = te.placeholder((6, 40), "float32", "x")
    return te.create_prim_func([x, get_operator("nn.softmax").te(x, axis=-1)])


def attention(tokens: int = 6) -> PrimFunc:
    """Two matmuls with a softmax in between."""
    q, k, v = (te.placeholder((tokens, 8), "float32", name) for name in "qkv")
    d, t = te.reduce_axis(8, "d"), te.reduce_axis(tokens, "t")
    scores = te.compute((tokens, tokens), lambda i, j: te.sum(q[i, d] * k[j, d], axis=d), name="scores")
    weights = get_operator("nn.softmax").te(scores, axis=-1)
    y = te.compute((tokens, 8), lambda i, e: te.sum(weights[i, t] * v[t, e], axis=t), name="y")
    return te.create_prim_func([q, k, v, y])


def column_sums() -> PrimFunc:
    x, k = te.placeholder((5, 40), "float32", "x"), te.reduce_axis(5, "k")
    return te.create_prim_func([x, te.compute((40,), lambda j: te.sum(x[k, j], axis=k), name="total")])


def total() -> PrimFunc:
    x, k = te.placeholder((1, 100), "float32", "x"), te.reduce_axis(100, "k")
    return te.create_prim_func([x, te.compute((1,), lambda i: te.sum(x[i, k], axis=k), name="total")])


def padded_convolution() -> PrimFunc:
    """A convolution of 3 x 3 with a border of zeros, and ReLU."""
    x, w = te.placeholder((6, 6, 4), "float32", "x"), te.placeholder((3, 3, 4, 8), "float32", "w")
    inside = lambda i: ir.logical_and(i >= 1, i < 7)  # noqa: E731
    border = te.compute(
        (8, 8, 4),
        lambda i, j, c: te.if_then_else(ir.logical_and(inside(i), inside(j)), x[i - 1, j - 1, c], 0.0),
        name="border",
    )
    a, b, c = (te.reduce_axis(extent, name) for extent, name in ((3, "a"), (3, "b"), (4, "c")))
    y = te.compute((6, 6, 8), lambda i, j, o: te.sum(border[i + a, j + b, c] * w[a, b, c, o], axis=(a, b, c)), name="y")
    return te.create_prim_func([x, w, te.compute((6, 6, 8), lambda *i: te.max(y[i], 0.0), name="relu")])


def check(func: PrimFunc, candidate: Candidate) -> None:
    """Assert that a candidate that changes no layouts keeps the function's results."""
    arguments = random_arguments(func, {})
    (expected,) = run(func, arguments)
    (got,) = run(lowered(candidate.func), arguments)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def several(space: Space, task: Task, count: int) -> list[Candidate]:
    found = [space.candidate(task, seed) for seed in range(4 * count)]
    different = {c.key: c for c in found if c is not None}
    assert len(different) >= count
    return list(different.values())[:count]


@pytest.mark.parametrize("make", [product, scaled, softmax, total, padded_convolution, attention])
def test_sketches_compute_the_function(make: Callable[[], PrimFunc]):
    task = Task("f", make(), AVX2)
    for candidate in several(CpuSketches(), task, 3):
        check(task.func, candidate)


def buffers(candidate: Candidate | None) -> dict[str, list[int | None]]:
    """The shapes of the buffers that a candidate reads, by name."""
    assert candidate is not None
    loads = [n for n in walk(candidate.func.body) if isinstance(n, BufferLoad)]
    return {n.buffer.name: [constant_extent(size) for size in n.buffer.shape] for n in loads}


def test_operands_that_would_be_gathered_are_copied_into_panels():
    """The keys of attention, whose elements for adjacent scores are apart in memory."""
    task, space = Task("f", attention(32), AVX2), CpuSketches()
    default = space.default(task)
    assert default is not None and buffers(default)["k_global"] == [2, 8, 16] and "v_global" not in buffers(default)
    check(task.func, default)
    assert "k_global" not in buffers(space.candidate(task, 0, [default.decisions[0], 0]))


def kinds(candidate: Candidate | None) -> set[str]:
    assert candidate is not None
    return {n.kind for n in walk(candidate.func.body) if isinstance(n, For)}


@pytest.mark.parametrize("make", [product, softmax, padded_convolution])
def test_sketches_run_in_parallel_and_in_lanes(make: Callable[[], PrimFunc]):
    task = Task("f", make(), AVX2)
    assert any({PARALLEL, VECTORIZED} <= kinds(c) for c in several(CpuSketches(), task, 3))


def test_the_default_of_a_rule_is_the_rule():
    task, space = Task("f", product(), AVX2), RuleSpace(CPU_RULES, AVX2)
    default = space.default(task)
    plain = next(s for rule in CPU_RULES if (s := rule.apply(task.workload, AVX2)) is not None)
    assert default is not None and default.func.script() == plain.func.script()


CHOICES = [product, softmax, scaled, column_sums, padded_convolution, lambda: quantized(7, 40, 64)]


@pytest.mark.parametrize("make", CHOICES)
def test_choices_of_rules_change_the_loops_only(make: Callable[[], PrimFunc]):
    task, space = Task("f", make(), AVX2), RuleSpace(CPU_RULES, AVX2)
    made = several(space, task, 3)
    assert len({c.func.script() for c in made}) > 1
    for candidate in made:
        again = Schedule(task.workload)
        candidate.trace.apply_to_schedule(again)
        assert again.func.script() == candidate.func.script()
    if not any("layouts" in c.func.attrs for c in made):
        for candidate in made:
            check(task.func, candidate)


@pytest.mark.parametrize(("rows", "choices"), [(1, 2), (2, 2), (64, 3)])
def test_every_choice_for_quantized_weights_makes_a_difference(rows: int, choices: int):
    """A single row has no choice of rows, but of columns and of streams."""
    task, space = Task("f", rewritten(quantized(rows, 256, 64), AVX2), AVX2), RuleSpace(CPU_RULES, AVX2)
    default = space.default(task)
    assert default is not None and len(default.decisions) == choices
    for position in range(choices):
        changed = [[*default.decisions[:position], n, *default.decisions[position + 1 :]] for n in range(2)]
        made = [space.candidate(task, decisions=decisions, explore=False) for decisions in changed]
        assert len({c.func.script() for c in made if c is not None}) == 2


def test_decisions_give_the_same_candidate_again():
    task, space = Task("f", padded_convolution(), AVX2), default_space(AVX2)
    for candidate in several(space, task, 3):
        again = space.candidate(task, 99, candidate.decisions)
        assert again is not None and again.key == candidate.key


def test_an_impossible_decision_is_drawn():
    s = GuidedSchedule(scaled(), decisions=[[5, 5], 7], seed=1)
    factors = s.sample_perfect_tile(s.get_loops("b")[1], n=2)
    assert factors[0] * factors[1] == 48
    assert s.sample_categorical([10, 20], [0.5, 0.5]) in (10, 20)


def test_a_default_is_taken_where_nothing_is_explored():
    s = GuidedSchedule(scaled(), explore=False, seed=1)
    assert s.sample_categorical([10, 20, 30], [0.2, 0.3, 0.5], decision=1) == 20
    draws = {GuidedSchedule(scaled(), seed=i).sample_categorical([10, 20], [0.5, 0.5], decision=1) for i in range(20)}
    assert draws == {10, 20}


def test_the_space_is_a_choice():
    task, space = Task("f", scaled(), AVX2), AnyOf((ScheduleFn(tiled), CpuSketches()))
    default = space.default(task)
    assert default is not None and default.decisions[0] == 0 and kinds(default) == {"serial"}
    other = space.candidate(task, 0, [1])
    assert PARALLEL in kinds(other)


def test_a_function_of_a_space_returns_a_schedule():
    with pytest.raises(MLCError, match="returned a int"):
        ScheduleFn(lambda s: 3).default(Task("f", scaled(), AVX2))


def test_candidates_keep_the_layouts_of_weights_that_others_read():
    """A matmul with 4-bit weights, whose rule chooses among layouts of the weights."""
    alone = Task("f", quantized(7, 40, 64), AVX2)
    layouts: list[set[str]] = []
    for task in (alone, replace(alone, keeps_layouts=True)):
        history = History(task, RuleSpace(CPU_RULES, AVX2), Random(0))
        layouts.append({str(layouts_of(c.func)) for c in history.drawn(6, history.candidate)})
    default = RuleSpace(CPU_RULES, AVX2).default(alone)
    assert default is not None and len(layouts[0]) > 1 and layouts[1] == {str(layouts_of(default.func))}
