"""Schedules with random choices: the fastest of several is used in a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mlc_compiler import I, IRModule, Schedule, T, bind_params, build, structural_equal, to_script
from tests.compiler.api.mlp import B0, W0, WEIGHTS, X, check_mlp
from tests.compiler.api.test_examples_texts import SQUARES, published


@I.ir_module
class MyModule:
    @T.prim_func
    def main(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(128, 128, 128):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def stochastic_schedule(s: Schedule, block: str = "C") -> Schedule:
    """A schedule that tiles the columns by a random width and decomposes the reduction."""
    found = s.get_block(block, func_name="main")
    i, j, k = s.get_loops(found)
    j_0, j_1 = s.split(loop=j, factors=s.sample_perfect_tile(loop=j, n=2))
    s.reorder(i, j_0, k, j_1)
    s.decompose_reduction(found, k)
    return s


def random_search(
    mod: IRModule, schedule: Callable[[Schedule], Schedule], args: Sequence[np.ndarray], trials: int = 4
) -> tuple[Schedule, list[tuple[float, str]]]:
    """The fastest of several random schedules, and the seconds and trace of each."""
    results = []
    for seed in range(trials):
        s = schedule(Schedule(mod, seed=seed))
        seconds = build(s.mod).time_evaluator("main", number=1, repeat=2)(*args).min
        results.append((seconds, s))
    best = min(results, key=lambda r: r[0])[1]
    return best, [(seconds, str(s.trace)) for seconds, s in results]


def test_the_best_of_some_random_schedules():
    a, b = SQUARES
    c = np.full_like(a, np.nan)
    best, tried = random_search(MyModule, stochastic_schedule, (a, b, c))
    assert len({trace for _, trace in tried}) > 1 and str(best.trace) in [trace for _, trace in tried]
    assert min(tried)[1] == str(best.trace) and all(seconds > 0 for seconds, _ in tried)
    lines = str(best.trace).splitlines()
    assert lines[2].startswith("v4, v5 = sch.sample_perfect_tile(l2, n=2, decision=[")
    assert lines[3:] == [
        "l6, l7 = sch.split(l2, factors=[v4, v5])",
        "sch.reorder(l1, l6, l3, l7)",
        "b8 = sch.decompose_reduction(b0, l3)",
    ]
    build(best.mod)["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    again = Schedule(MyModule, seed=99)
    best.trace.apply_to_schedule(again)
    assert structural_equal(again.mod, best.mod)


def test_schedules_draw_other_choices_unless_they_have_a_seed():
    traces = [str(stochastic_schedule(Schedule(MyModule)).trace) for _ in range(25)]
    assert len(set(traces)) > 1
    one, same = (str(stochastic_schedule(Schedule(MyModule, seed=3)).trace) for _ in range(2))
    assert one == same


@pytest.mark.usefixtures("environment")
def test_a_tuned_function_in_a_model_with_bound_parameters():
    mixture = published("mlp_mixture")
    linear = IRModule({"main": mixture["linear0"].with_attr("global_symbol", "main")})
    best, _ = random_search(linear, lambda s: stochastic_schedule(s, "Y"), (X, W0, B0, np.empty((1, 128), "f4")), 2)
    model = bind_params(mixture, "main", WEIGHTS)
    name = model.get_global_var("linear0")
    tuned = model.with_function(name, best.mod["main"].with_attr("global_symbol", "linear0"))
    assert "Y_init" in to_script(tuned["linear0"]) and "Y_init" not in to_script(model)
    check_mlp(tuned, X)
