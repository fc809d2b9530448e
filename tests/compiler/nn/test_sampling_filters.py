"""Sampling filters against sorting in numpy, and draws against the filtered distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler import build, nn
from mlc_compiler.interp import run_function
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import op, spec
from tests.compiler.sampling_reference import filtered

VOCAB, DRAWS = 45, 10_000
TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:generic")
NAMES = ("top_k", "top_p", "min_p", "typical_p")
ALL = (0, 1.0, 0.0, 1.0)
CASES = {
    "none": ALL,
    "top-k": (7, 1.0, 0.0, 1.0),
    "top-p": (0, 0.7, 0.0, 1.0),
    "min-p": (0, 1.0, 0.15, 1.0),
    "typical-p": (0, 1.0, 0.0, 0.6),
    "together": (30, 0.9, 0.05, 0.8),
}


def kept(probs, top_k, top_p, min_p, typical_p):
    return op.filter_probabilities(probs, top_k, top_p, min_p, typical_p)


def drawn(logits, top_k, top_p, min_p, typical_p, uniform):
    probs = op.softmax_with_temperature(logits, op.ones(uniform.shape))
    return op.sample_top_p(kept(probs, top_k, top_p, min_p, typical_p), op.ones(uniform.shape), uniform)


def exported(function, first: str, *more: str, vocab: int = VOCAB) -> IRModule:
    row = spec.Tensor(["n"])
    inputs = {first: spec.Tensor(["n", vocab]), **dict.fromkeys(NAMES, row), **dict.fromkeys(more, row)}
    inputs["top_k"] = spec.Tensor(["n"], "int32")
    return nn.Module().export(spec.ModuleSpec({"main": spec.Function(function, inputs, "none")}))[0]


def columns(rows) -> list[np.ndarray]:
    return [np.array(c, t) for c, t in zip(zip(*rows, strict=True), ("i4", "f4", "f4", "f4"), strict=True)]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def filters():
    mod = exported(kept, "probs")
    return mod, {target: build(mod, target, num_threads=2)["main"] for target in TARGETS}


@settings(max_examples=40)
@given(
    row=st.tuples(st.integers(0, 50), st.floats(0.05, 1), st.floats(0, 0.5), st.floats(0.05, 1)),
    spread=st.floats(0.1, 6),
    seed=st.integers(0, 99),
)
def test_filters_keep_what_sorting_keeps(filters, row, spread: float, seed: int):
    probs = softmax(spread * np.random.default_rng(seed).standard_normal((1, VOCAB)))
    rows = columns([row])
    expected = filtered(probs[0], *(r[0] for r in rows))
    for function in filters[1].values():
        got = function(probs, *rows)[0]
        assert np.array_equal(got > 0, expected > 0) and np.array_equal(got[got > 0], probs[0][got > 0])


def test_the_interpreter_agrees(filters):
    probs = softmax(2 * np.random.default_rng(3).standard_normal((len(CASES), VOCAB)))
    rows = columns(CASES.values())
    expected = run_function(filters[0], "main", probs, *rows)
    assert np.count_nonzero(expected) < expected.size / 2
    for function in filters[1].values():
        assert np.array_equal(function(probs, *rows), expected)


def test_equal_probabilities_are_kept_together(filters):
    probs = np.zeros((2, VOCAB), np.float32)
    probs[:, [3, 9, 20, 44]] = 0.125, 0.25, 0.25, 0.375
    for function in filters[1].values():
        got = function(probs, *columns([(2, 1, 0, 1), (0, 0.5, 0, 1)]))
        assert [np.flatnonzero(row).tolist() for row in got] == [[9, 20, 44]] * 2


def test_a_vocabulary_of_many_vectors():
    probs = softmax(2 * np.random.default_rng(5).standard_normal((len(CASES), 5003)))
    got = build(exported(kept, "probs", vocab=5003), "cpu")["main"](probs, *columns(CASES.values()))
    for row, p, case in zip(got, probs, CASES.values(), strict=True):
        expected = filtered(p, *(np.float32(x) for x in case))
        assert abs(np.count_nonzero(row) - np.count_nonzero(expected)) <= 1  # sums of 5,003 numbers are rounded


@pytest.fixture(scope="module")
def draw():
    return build(exported(drawn, "logits", "uniform"), "cpu", num_threads=2)["main"]


@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_distribution_that_is_left(draw, case: str):
    """Pearson's statistic of 10,000 draws is within four deviations of its mean."""
    logits = 1.5 * np.random.default_rng(7).standard_normal(VOCAB).astype(np.float32)
    expected = filtered(softmax(logits), *(np.float32(x) for x in CASES[case]))
    expected = DRAWS * expected / expected.sum()
    uniform = np.random.default_rng(8).random(DRAWS, dtype=np.float32)
    tokens = draw(np.tile(logits, (DRAWS, 1)), *columns([CASES[case]] * DRAWS), uniform)
    counts = np.bincount(tokens, minlength=VOCAB)
    possible = expected > 0
    assert not counts[~possible].any()
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = np.count_nonzero(possible) - 1
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom)
