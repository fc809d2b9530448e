"""Routing: the choice of experts and the sort by expert in simulated kernels, against the interpreter and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler.backends.cuda.operators.simulated import simulate
from tests.compiler.relax.check_op import run_op

CASES: list[tuple[int, dict[str, Any]]] = [
    (5, {"k": 2, "renormalize": True}),
    (32, {"k": 32}),
    (70, {"k": 4, "score": "sigmoid", "renormalize": True, "scale": 2.5}),
    (12, {"k": 3, "score": "sigmoid", "groups": 4, "kept_groups": 2, "group_best": 2}),
]


@pytest.mark.parametrize(("experts", "attrs"), CASES, ids=[str(experts) for experts, _ in CASES])
@pytest.mark.parametrize("corrected", [False, True])
def test_choice(experts: int, attrs: dict[str, Any], corrected: bool) -> None:
    """Lanes with several experts, with one and with none; a warp of choices; groups, which have no kernel."""
    rng = np.random.default_rng(experts)
    logits = rng.standard_normal((7, experts), "f4")
    logits[3] = np.round(logits[3])  # equal scores
    args = [logits, *([rng.standard_normal(experts, "f4")] if corrected else [])]
    weights, ids = run_op("nn.route", *args, **attrs)
    got_weights, got_ids = simulate("nn.route", *args, symbolic=[7], **attrs)
    np.testing.assert_array_equal(got_ids, ids)
    np.testing.assert_allclose(got_weights, weights, rtol=2e-6)


def test_experts_of_logits_that_are_no_numbers_are_experts() -> None:
    logits = np.full((2, 40), np.nan, "f4")
    _, ids = simulate("nn.route", logits, k=3)
    assert ids.min() >= 0
    assert ids.max() < 40


@pytest.mark.parametrize(("tokens", "choices", "experts"), [(1, 2, 3), (9, 3, 8), (70, 4, 5), (40, 1, 1)])
def test_order_by_expert(tokens: int, choices: int, experts: int) -> None:
    """Fewer choices than threads, and more; experts without choices; experts that do not exist."""
    chosen = np.random.default_rng(tokens).integers(-1, experts + 1, (tokens, choices)).astype("int32")
    clipped = chosen.clip(0, experts - 1).ravel()
    order = clipped.argsort(kind="stable")
    places, ids, rows = simulate("nn.group_by_expert", chosen, symbolic=[tokens], num_experts=experts)
    np.testing.assert_array_equal(places.ravel(), order.argsort())
    np.testing.assert_array_equal(ids, clipped[order])
    np.testing.assert_array_equal(rows, order // choices)
