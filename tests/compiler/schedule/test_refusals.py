"""Illegal steps raise ScheduleError with the reason, and leave the function unchanged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule import Schedule, ScheduleError
from mlc_compiler.verifier import verify
from tests.compiler.schedule.operators import CASES, Case
from tests.compiler.schedule.random_steps import backwards
from tests.compiler.schedules.meaning import lowered


def refused(case: Case, step: Callable[[Schedule], object], why: str) -> None:
    s = Schedule(case.func)
    with pytest.raises(ScheduleError, match=why):
        step(s)
    assert structural_equal(s.func, case.func)


def kept(case: Case, step: Callable[[Schedule], object]) -> Schedule:
    s = Schedule(case.func)
    step(s)
    verify(s.func)
    for got, want in zip(case.run(s.func), case.run(case.func), strict=True):
        np.testing.assert_array_equal(got, want)
    return s


REFUSED = {
    "read-past-an-overwrite": (
        "overwritten",
        lambda s: s.compute_inline("t"),
        "'scale' writes 'A', which 't' reads",
    ),
    "producer-past-an-overwrite": (
        "overwritten",
        lambda s: s.compute_at("t", s.get_loops("out")[0]),
        "'scale' writes 'A', which 't' reads",
    ),
    "consumer-under-a-later-loop": (
        "overwritten",
        lambda s: s.reverse_compute_at("t", s.get_loops("scale")[0]),
        "block 't' runs before loop",
    ),
    "consumer-of-a-part": (
        "partly-overwritten",
        lambda s: s.reverse_compute_at("all", s.get_loops("even")[0]),
        "not known to be a box|beyond what the nest",
    ),
    "consumer-that-reads-under-a-condition": (
        "joined",
        lambda s: s.reverse_compute_at("joined", s.get_loops("left")[0]),
        "beyond what the nest|is not known|by then",
    ),
    "no-loop": ("chain", lambda s: s.split("first", [None, 4]), "got loop = 'first'; expected Var"),
    "no-factors": ("chain", lambda s: s.split(s.get_loops("first")[0], 4), "got factors = 4; expected Sequence"),
    "no-data": ("chain", lambda s: s.annotate("first", "note", object()), "expected numbers, strings"),
    "parallel-scan": ("scan", lambda s: s.parallel(s.get_loops("scan")[1]), "depend on each other"),
    "parallel-argmax": ("argmax", lambda s: s.parallel(s.get_loops("argmax")[1]), "carries the reduction"),
    "parallel-histogram": ("histogram", lambda s: s.parallel(s.get_loops("count")[0]), "carries the reduction"),
    "parallel-time": ("steps-in-time", lambda s: s.parallel(s.get_loops("there")[0]), "depend on each other"),
    "factored-horner": ("horner", lambda s: s.rfactor(s.get_loops("horner")[1], 0), "is no sum"),
    "factored-argmax": ("argmax", lambda s: s.rfactor(s.get_loops("argmax")[1], 0), "one store"),
    "factored-triangle": ("triangle", lambda s: s.rfactor(s.get_loops("sums")[1], 0), "depends on other loops"),
    "triangle-as-a-block": ("triangle", lambda s: s.blockize(s.get_loops("sums")[1]), "depends on other loops"),
    "loop-without-a-block": (
        "conditions",
        lambda s: s.parallel(s.block("row").body.stmts[1].var),
        "holds no block",
    ),
    "empty-part": ("total", lambda s: s.partition([s.get_loops("all")[1]], [7]), "is empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    case, step, why = REFUSED[name]
    refused(CASES[case](), step, why)


def test_a_guard_that_skips_whole_reductions_stays_with_their_start() -> None:
    s = Schedule(CASES["total"]().func)
    i, k, r = s.get_loops("all")
    whole = s.blockize(r)
    outer, inner = s.split(i, [2, 1])
    s.reorder(outer, k, inner)
    with pytest.raises(ScheduleError, match="let the reduction start"):
        s.decompose_reduction(whole, k)


def test_partial_sums_start_from_zero_whatever_the_sum_starts_from() -> None:
    s = kept(CASES["biased-start"](), lambda s: s.rfactor(s.get_loops("sum")[1], 0))
    assert s.get_blocks() == ["sum_rf", "sum"]


def test_groups_are_summed_within_the_loops_around_other_blocks() -> None:
    s = kept(CASES["max-then-sum"](), lambda s: s.factor_reduction("sum", 3))
    assert s.get_blocks() == ["m", "sum_partial", "sum"]


def test_a_block_with_memory_of_its_own_can_be_put_into_another() -> None:
    kept(CASES["outer-block"](), lambda s: s.blockize(s.get_loops("outer")[0]))


def test_a_buffer_whose_size_depends_on_a_loop_stays_one_buffer_when_the_loop_is_renamed() -> None:
    case = CASES["where"]()
    s = Schedule(case.func)
    s.compute_at("t", s.get_loops("out")[0])
    s.cache_write("t")
    s.parallel(s.get_loops("out")[0])
    for got, want in zip(case.run(backwards(lowered(s.func))), case.run(case.func), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_block_around_one_that_is_inlined_goes_with_it() -> None:
    def inline(s: Schedule) -> None:
        i, j = s.get_loops("second")
        s.reorder(j, i)
        s.blockize(i)
        s.compute_inline("second")

    assert kept(CASES["chain-unit"](), inline).get_blocks() == ["first", "third"]


def test_producers_and_consumers() -> None:
    s = Schedule(CASES["chain"]().func)
    assert s.get_producers("third") == ["first", "second"]
    assert s.get_consumers("first") == ["second", "third"]


def test_the_module_and_the_trace_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    s = Schedule(CASES["chain"]().func)
    s.parallel(s.get_loops("first")[0])
    s.show()
    shown = capsys.readouterr().out
    assert "for i in T.parallel(7):" in shown and "sch.parallel(l0)" in shown


def test_a_loop_without_iterations_is_not_cut() -> None:
    a = te.placeholder((0, 4), name="A")
    s = Schedule(te.create_prim_func([a, te.compute((0, 4), lambda i, j: a[i, j] + 1.0, name="out")]))
    i, j = s.get_loops("out")
    with pytest.raises(ScheduleError, match="no iterations"):
        s.fuse(i, j)
    with pytest.raises(ScheduleError, match="no iterations"):
        s.split(i, [None, 4])
