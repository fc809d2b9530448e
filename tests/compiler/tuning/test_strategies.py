"""Search strategies with planted run times, their cost model, and the features that rank candidates."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.tuning.accounting import Account, account
from mlc_compiler.tuning.cost_model import FEWEST, CostModel
from mlc_compiler.tuning.measure import Trial
from mlc_compiler.tuning.space import Candidate, ScheduleFn
from mlc_compiler.tuning.strategies import (
    MISSES,
    Beam,
    Evolution,
    History,
    RandomSearch,
    Strategy,
    alternatives,
    crossed,
    neighbours,
    strategy_named,
)
from mlc_compiler.tuning.task import Task
from mlc_errors import UsageError
from tests.compiler.schedules.meaning import AVX2, AVX512
from tests.compiler.tuning.spaces import product, scaled

BEST = (5, 6, 1, 4)


def four_choices(s: Schedule) -> None:
    for i in range(4):
        choice = s.sample_categorical(list(range(8)), [1 / 8] * 8)
        s.annotate("b", f"choice{i}", int(choice))


def planted(candidate: Candidate) -> float:
    """Planted run time in seconds, which grows with the distance of each decision from BEST."""
    return 1e-6 * (1 + sum(abs(a - b) for a, b in zip(candidate.decisions, BEST, strict=True)))


class Planted(History):
    """A history whose estimates (features) are the decisions."""

    def estimate(self, candidate: Candidate) -> Account:
        return Account(*map(float, candidate.decisions))


def found(strategy: Strategy, seed: int, kind: type[History]) -> float:
    """The best planted run time after 48 trials."""
    history = kind(Task("f", scaled(), AVX2), ScheduleFn(four_choices), Random(seed))
    while len(history.trials) < 48:
        for candidate in strategy.propose(history, 8):
            assert candidate.key not in history.by_key
            history.add(Trial(candidate, planted(candidate)))
    return history.timed[0][0]


@pytest.mark.parametrize(("strategy", "kind"), [(Evolution, Planted), (Beam, History)])
def test_searches_beat_random_draws(strategy: Callable[[], Strategy], kind: type[History]):
    mean = lambda make: np.mean([found(make(), seed, kind) for seed in range(3)])  # noqa: E731
    assert mean(strategy) < 0.7 * mean(RandomSearch)


def test_a_space_with_few_candidates_is_left_after_few_draws():
    made: list[int] = []

    def one_of_three(s: Schedule) -> None:
        made.append(s.sample_categorical([0, 1, 2], [1 / 3] * 3))

    history = History(Task("f", scaled(), AVX2), ScheduleFn(one_of_three), Random(0))
    assert len(Evolution().propose(history, 8)) == 3 and len(made) <= 3 * MISSES


def test_failed_trials_have_no_children():
    history = History(Task("f", scaled(), AVX2), ScheduleFn(four_choices), Random(0))
    (first,) = RandomSearch().propose(history, 1)
    history.add(Trial(first, None, "crash: SIGSEGV"))
    assert history.timed == []
    assert first.key not in {c.key for c in Evolution().propose(history, 20)}


def test_beams_never_try_what_the_account_rules_out():
    def slow_or_fast(s: Schedule) -> None:
        tile(4, 8 if s.sample_categorical([0, 1], [0.5, 0.5]) else 1)(s)
        s.annotate("c", "choice", int(s.sample_categorical([0, 1], [0.5, 0.5])))

    history = History(Task("f", product(), AVX2), ScheduleFn(slow_or_fast), Random(0))
    fast = history.candidate([1, 0])
    assert fast is not None
    history.add(Trial(fast, 1e-6))
    assert [c.decisions for c in Beam(slack=2.0).propose(history, 8)] == [(1, 1)]
    assert {c.decisions for c in Beam(slack=100.0).propose(history, 8)} == {(1, 1), (0, 0)}


def candidate(function: Callable[[Schedule], None], func: PrimFunc | None = None, seed: int = 0) -> Candidate:
    made = ScheduleFn(function).candidate(Task("f", func or scaled(), AVX2), seed)
    assert made is not None
    return made


def test_alternatives_of_steps():
    def both(s: Schedule) -> None:
        s.sample_categorical([4, 8, 16], [0.5, 0.25, 0.25])
        s.sample_perfect_tile(s.get_loops("b")[1], n=2, max_innermost_factor=4)

    category, tiling = (alternatives(step) for step in candidate(both).trace if step.name.startswith("sample"))
    assert category == [0, 1, 2]
    assert tiling == [[12, 4], [16, 3], [24, 2], [48, 1]]
    assert len(list(neighbours(candidate(both)))) == 2 + 3


def test_crossed_decisions_are_from_either_parent():
    a, b = candidate(four_choices, seed=1), candidate(four_choices, seed=2)
    child = crossed(a, b, Random(0))
    assert all(d in pair for d, pair in zip(child, zip(a.decisions, b.decisions, strict=True), strict=True))


def test_the_cost_model_learns_an_order():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 8, (40, 3))
    seconds = 2.0 ** (2 * x[:, 0] - x[:, 1] + 0.1 * (x[:, 2] - 4) ** 2 - 20)
    model = CostModel()
    model.fit(x[: FEWEST - 1], seconds[: FEWEST - 1])
    assert not model.is_fitted
    model.fit(x[:30], seconds[:30])
    error = model.predict(x[30:]) - np.log2(seconds[30:])
    assert np.abs(error).max() < 0.05 * np.ptp(np.log2(seconds))


def tile(rows: int, lanes: int) -> Callable[[Schedule], None]:
    """A schedule with ``rows`` by ``lanes`` accumulators in registers over the whole reduction."""

    def steps(s: Schedule) -> None:
        s.cache_write("c", "local")
        i, j, k = s.get_loops("c")
        (i0, i1), (j0, j1) = s.split(i, [None, rows]), s.split(j, [None, lanes])
        s.reorder(i0, j0, k, i1, j1)
        s.unroll(i1)
        s.vectorize(j1)

    return steps


def test_accounts_count_vectors_reuse_and_registers():
    of = lambda rows, lanes: account(candidate(tile(rows, lanes), product()).func, AVX2, {})  # noqa: E731
    narrow, wide, tall = of(1, 1), of(1, 8), of(4, 8)
    assert narrow.operations == pytest.approx(8 * wide.operations)
    assert tall.operations == wide.operations and tall.loads < wide.loads
    assert wide.spills == tall.spills == 0 and of(16, 32).spills > 0
    assert tall.cycles < wide.cycles < narrow.cycles


def test_accounts_depend_on_the_target_and_on_sizes():
    wide = candidate(tile(4, 16), product()).func
    assert account(wide, AVX512, {}).operations < account(wide, AVX2, {}).operations


def test_strategies_by_name():
    assert isinstance(strategy_named("beam"), Beam)
    with pytest.raises(UsageError, match="expected one of random, evolution, beam"):
        strategy_named("annealing")
