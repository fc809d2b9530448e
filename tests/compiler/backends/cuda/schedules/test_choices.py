"""Choices of the rules for GPUs: in the simulator, every alternative gives the interpreter's results without races."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from mlc_compiler.backends.cuda.schedules import CUDA_RULES
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.relax.ops.manipulate import permute_dims
from mlc_compiler.relax.ops.normalize import rms_norm, softmax
from mlc_compiler.relax.ops.reduce import argmax, sum
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule.trace import SAMPLES, Step
from mlc_compiler.tuning.space import Candidate, RuleSpace
from mlc_compiler.tuning.strategies import alternatives
from mlc_compiler.tuning.task import Task
from tests.compiler.backends.cuda.scheduled import simulated
from tests.compiler.schedules.meaning import random_arguments, run

TARGET = Target("cuda:sm_90a")
SPACE = RuleSpace(CUDA_RULES, TARGET)


def gated(columns: int = 72) -> PrimFunc:
    """``x * y + x``, float16 [n, columns]."""
    n = te.var("n")
    x, y = (te.placeholder((n, columns), "float16", name) for name in "xy")
    return te.create_prim_func([x, y, te.elementwise("gated", lambda a, b: a * b + a, x, y)])


def normalized(length: int = 200) -> PrimFunc:
    """An RMS norm with weights, float16 [n, length]."""
    x, w = te.placeholder((te.var("n"), length), "float16", "x"), te.placeholder((length,), "float16", "w")
    return te.create_prim_func([x, w, rms_norm.te(x, w)])


def heads_normalized() -> PrimFunc:
    """An RMS norm of each of four heads, float16 [n, 4, 64]."""
    x, w = te.placeholder((te.var("n"), 4, 64), "float16", "x"), te.placeholder((64,), "float16", "w")
    return te.create_prim_func([x, w, rms_norm.te(x, w)])


def two_results() -> PrimFunc:
    """``2 x`` and its square, float16 [3, 40]."""
    x = te.placeholder((3, 40), "float16", "x")
    double = te.elementwise("double", lambda v: v + v, x)
    return te.create_prim_func([x, double, te.elementwise("square", lambda v: v * v, double)])


def _of(operator: Callable[[te.Tensor], te.Tensor], *shape: int) -> Callable[[], PrimFunc]:
    x = te.placeholder(shape, "float32", "x")
    return lambda: te.create_prim_func([x, operator(x)])


CASES: dict[str, Callable[[], PrimFunc]] = {
    "elementwise": gated,
    "two results": two_results,
    "transposition": _of(lambda x: permute_dims.te(x, axes=[1, 0]), 64, 32),
    "norm": normalized,
    "norm of heads": heads_normalized,
    "softmax": _of(softmax.te, 2, 61),
    "argmax": _of(argmax.te, 2, 130),
    "columns": _of(lambda x: sum.te(x, axis=0), 50, 33),
    "all": _of(sum.te, 30, 33),
}


def choices(candidate: Candidate | None) -> list[Step]:
    """The sampling steps of a candidate."""
    assert candidate is not None
    return [step for step in candidate.trace if step.name in SAMPLES]


def candidates(task: Task) -> Iterator[Candidate]:
    """Candidates that together have each alternative of each choice of the default."""
    open_ = [alternatives(step) for step in choices(SPACE.default(task))]
    for number in range(max(map(len, open_))):
        made = SPACE.candidate(task, 0, [each[number % len(each)] for each in open_], explore=False)
        assert made is not None and choices(made), "a step failed: the schedule is that of another rule"
        yield made


@pytest.mark.parametrize("case", CASES)
def test_alternatives_compute_the_function(case: str) -> None:
    task = Task("f", CASES[case](), TARGET)
    arguments = random_arguments(task.func, {"n": 3})
    expected = run(task.func, arguments)
    tolerance = 4e-3 if expected[0].dtype == np.float16 else 1e-5
    functions = [candidate.func for candidate in candidates(task)]
    assert not any(structural_equal(a.body, b.body) for a, b in pairwise(functions))
    for func in functions:
        found, _ = simulated(func, *arguments)
        for got, want in zip(found[-len(expected) :], expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (gated(4096), {8: [1, 2, 4, 8], 1: [1, 2, 4], 256: [64, 128, 256, 512]}),
        (normalized(4096), {1: [1], 512: [32, 64, 128, 256, 512, 1024], 8: [1, 2, 4, 8], 4: [1, 4, 16]}),
        (heads_normalized(), {1: [1, 2, 4], 32: [32, 64], 8: [1, 2, 4, 8], 4: [1, 4, 16]}),
    ],
    ids=["elementwise", "norm", "norm of heads"],
)
def test_choices_and_their_defaults(func: PrimFunc, expected: dict[int, list[int]]) -> None:
    """Element-wise: width of vectors, vectors of a thread, threads. Norms: rows of a block, threads, width, steps."""
    steps = [step.keywords for step in choices(SPACE.default(Task("f", func, TARGET)))]
    assert {step["candidates"][step["decision"]]: step["candidates"] for step in steps} == expected
