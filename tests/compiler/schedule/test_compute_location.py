"""sample_compute_location: possible places, the trace, replays with other decisions, and mutation."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mlc_compiler.ir.structural import first_difference
from mlc_compiler.target import Target
from mlc_compiler.tir.schedule import Schedule, ScheduleError, Trace
from mlc_compiler.tuning.space import ScheduleFn
from mlc_compiler.tuning.strategies import mutated, neighbours
from mlc_compiler.tuning.task import Task
from tests.compiler.schedule.operators import CASES

CASE = CASES["matmul"]()


def moved(decision: int | None = None, seed: int = 0, block: str = "biased") -> Schedule:
    s = Schedule(CASE.func, seed=seed)
    s.compute_at(block, s.sample_compute_location(block, decision))
    return s


@pytest.mark.parametrize(
    ("decision", "blocks", "loops"),
    [(-2, ["product", "relu"], 0), (-1, ["product", "biased", "relu"], 2), (0, None, 2)],
)
def test_a_decision_is_a_place(decision: int, blocks: list[str] | None, loops: int) -> None:
    s = moved(decision)
    assert s.get_blocks() == (blocks or ["product", "biased", "relu"])
    if decision >= 0:
        assert s.get_loops("biased")[decision] is s.get_loops("relu")[decision]
    elif loops:
        assert len(s.get_loops("biased")) == loops
    for got, want in zip(CASE.run(s.func), CASE.run(CASE.func), strict=True):
        np.testing.assert_array_equal(got, want)


def test_all_places_are_drawn_and_no_other() -> None:
    drawn = {moved(seed=seed).trace.decisions[0] for seed in range(40)}
    assert drawn == {-2, -1, 0, 1} == set(moved().trace.steps[0].options)


def test_a_reduction_is_not_inlined_and_not_moved_below_its_reader_twice() -> None:
    assert moved(-1, block="product").trace.steps[0].options == (-1, 0, 1)
    assert moved(-1, block="relu").trace.steps[0].options == (-1,)


def test_an_impossible_decision_takes_the_place_before_it() -> None:
    assert moved(7).trace.decisions == {0: 1}
    assert moved(-2, block="product").trace.decisions == {0: -1}


def test_the_trace_says_the_decision_and_replays_with_another() -> None:
    s = moved(1)
    assert str(s.trace) == 'l0 = sch.sample_compute_location("biased", decision=1)\nsch.compute_at("biased", l0)'
    again = Schedule(CASE.func)
    Trace.from_json(s.trace.as_json()).apply_to_schedule(again)
    assert first_difference(again.func, s.func) is None and again.trace == s.trace
    other = Schedule(CASE.func)
    s.trace.apply_to_schedule(other, {0: -2})
    assert first_difference(other.func, moved(-2).func) is None


def test_a_sampled_loop_is_named_apart_from_the_loop_itself() -> None:
    """A replay with another decision moves the block elsewhere and splits the same loop."""
    s = Schedule(CASE.func)
    i, _ = s.get_loops("relu")
    place = s.sample_compute_location("biased", 0)
    s.compute_at("biased", place)
    s.split(i, [None, 2])
    other = Schedule(CASE.func)
    s.trace.apply_to_schedule(other, {1: -1})
    assert [v.name for v in other.get_loops("relu")] == ["i_0", "i_1", "j"]
    assert [v.name for v in other.get_loops("biased")] == ["i", "j"]


def test_a_place_of_another_schedule_is_refused() -> None:
    place = Schedule(CASE.func).sample_compute_location("biased", 0)
    with pytest.raises(ScheduleError, match="a location that another schedule sampled"):
        Schedule(CASE.func).compute_at("biased", place)


def test_places_are_mutated_like_other_choices() -> None:
    def space(s: Schedule) -> None:
        s.compute_at("biased", s.sample_compute_location("biased"))

    task = Task("main", CASE.func, Target("cpu"))
    candidate = ScheduleFn(space).candidate(task, decisions=[0])
    assert candidate is not None and candidate.decisions == (0,)
    assert list(neighbours(candidate)) == [[-2], [-1], [1]]
    drawn = {tuple(mutated(candidate, Random(seed))) for seed in range(30)}
    assert drawn == {(-2,), (-1,), (1,)}
    children = [ScheduleFn(space).candidate(task, decisions=list(d)) for d in sorted(drawn)]
    assert [c.decisions for c in children if c is not None] == [(-2,), (-1,), (1,)]
