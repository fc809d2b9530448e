"""Random steps on small functions: each accepted schedule keeps results, and can be printed, parsed, lowered and
replayed.

``SCHEDULE_EXAMPLES=5000 pytest …/test_random_schedules.py`` runs more of them, new ones each time.
"""

from __future__ import annotations

import os
from random import Random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.passes.lower_math import LowerMath
from mlc_compiler.script import parse, script
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule, ScheduleError, Trace
from mlc_compiler.verifier import verify
from tests.compiler.schedule.operators import CASES, Case
from tests.compiler.schedule.random_steps import STEPS, backwards

EXAMPLES = int(os.environ.get("SCHEDULE_EXAMPLES", "0"))
MAX_STEPS = 10


def lowered(func: PrimFunc) -> PrimFunc:
    mod = IRModule({"main": func})
    for step in (LowerBlocks(), LowerMath()):
        mod = step.run(mod)
    return mod["main"]


def check(case: Case, func: PrimFunc, expected: list[np.ndarray]) -> None:
    """Asserts the results of a scheduled function, for both orders of concurrent loops, before and after lowering."""
    verify(func)
    assert first_difference(parse(script(func)), func) is None
    for got, want in zip(case.run(backwards(func)), expected):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(case.run(backwards(lowered(func))), expected):
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=0)


def check_replay(case: Case, s: Schedule) -> None:
    """Asserts that replaying the trace, after a round trip through JSON, gives the same function."""
    again = Schedule(case.func)
    Trace.from_json(s.trace.as_json()).apply_to_schedule(again)
    assert first_difference(again.func, s.func) is None
    executed = Schedule(case.func)
    exec(str(s.trace), {"sch": executed})
    assert first_difference(executed.func, s.func) is None


@settings(
    max_examples=EXAMPLES or 100,
    derandomize=not EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.sampled_from(sorted(CASES)), st.randoms(use_true_random=False))
def test_a_legal_schedule_computes_the_same(name: str, random: Random) -> None:
    case = CASES[name]()
    expected = case.run(case.func)
    s = Schedule(case.func, seed=random.randint(0, 99))
    for _ in range(random.randint(1, MAX_STEPS)):
        before = s.func
        try:
            STEPS[random.choice(sorted(STEPS))](s, random)
        except ScheduleError:
            continue
        if s.func is not before:
            check(case, s.func, expected)
    check_replay(case, s)
