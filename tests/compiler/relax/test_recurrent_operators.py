"""Recurrent operators over several calls: whole sequences, chunks and single tokens give equal results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from mlc_compiler import Library, build
from tests.compiler.relax import recurrences
from tests.compiler.relax.check_op import arrays_in, graph_of

LENGTH, LAYER = 11, 1
SLOTS = np.array([3, 1], "int32")
RNG = np.random.default_rng(31)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Case:
    """An operator on two sequences of ``LENGTH`` tokens each.

    state: shape of the state of one slot and layer. inputs: [2 * LENGTH, ...], tokens of the first sequence, then of
    the second. weights, more: the arguments after the inputs and after the layer.
    """

    name: str
    state: tuple[int, ...]
    inputs: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...]
    reference: Any
    more: tuple[np.ndarray, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()

    def args(self, rows: np.ndarray, state: np.ndarray) -> tuple[Any, ...]:
        """The operator's arguments for some of the tokens."""
        places = (SLOTS, (rows // LENGTH).astype("int32"), (rows % LENGTH).astype("int32"))
        return (state, *(x[rows] for x in self.inputs), *self.weights, *places, LAYER, *self.more)


def conv(taps: int, channels: int) -> Case:
    x, weight = normal(2 * LENGTH, channels), normal(taps, channels)
    attrs = (("activation", "silu"),)
    reference = lambda *args: recurrences.causal_conv(*args, first=0)  # noqa: E731
    return Case("recurrent.causal_conv", (taps - 1, channels), (x,), (weight,), reference, (normal(channels),), attrs)


def matrices(reference: Any, *inputs: np.ndarray, weights: tuple[np.ndarray, ...] = ()) -> Case:
    """A recurrence whose state has 3 heads of 7 x 37."""
    return Case(f"recurrent.{reference.__name__}", (3, 7, 37), inputs, weights, reference)


def of_heads(*sizes: int) -> np.ndarray:
    return normal(2 * LENGTH, 3, *sizes) / 2


CASES = {"conv of 3": conv(3, 40), "conv of 4": conv(4, 70)}
CASES |= {
    "gated delta rule": matrices(
        recurrences.gated_delta_rule,
        *(normal(2 * LENGTH, 1, 7) / 2 for _ in "qk"),
        of_heads(37),
        abs(of_heads()),
        of_heads(),
    ),
    "gated delta rule with a decay for each row": matrices(
        recurrences.gated_delta_rule,
        *(normal(2 * LENGTH, 1, 7) / 2 for _ in "qk"),
        of_heads(37),
        abs(of_heads(7)),
        of_heads(),
    ),
    "rwkv 7": matrices(
        recurrences.rwkv7, *(of_heads(7) for _ in range(3)), of_heads(37), *(of_heads(7) for _ in range(2))
    ),
    "rwkv 6": matrices(recurrences.wkv, *(of_heads(7) for _ in range(3)), of_heads(37), weights=(normal(3, 7),)),
    "ssd": Case(
        "recurrent.ssd",
        (3, 7, 37),
        (normal(2 * LENGTH, 3 * 37 + 2 * 7), normal(2 * LENGTH, 3)),
        (normal(3), -abs(normal(3)), normal(3)),
        partial(recurrences.ssd, groups=1, dt_first=0, dt_limits=(0.0, np.inf)),
    ),
    "selective scan": Case(
        "recurrent.selective_scan",
        (1, 7, 70),
        (normal(2 * LENGTH, 1, 70), abs(normal(2 * LENGTH, 1, 70)), *normal(2, 2 * LENGTH, 7)),
        (-abs(normal(7, 70)), normal(70)),
        recurrences.selective_scan,
    ),
    "token shift": Case("recurrent.token_shift", (70,), (normal(2 * LENGTH, 70),), (), recurrences.token_shift),
}


def calls() -> Iterator[np.ndarray]:
    """The tokens of each call: chunks of both sequences together, then mixed, then one token of each."""
    a, b = np.arange(LENGTH), np.arange(LENGTH) + LENGTH
    yield np.concatenate([a[:5], b[:2]])
    yield np.stack([a[5:8], b[2:5]], 1).ravel()
    yield from (np.array([b[5 + i], a[8 + i]]) for i in range(3))
    yield b[8:]


@pytest.mark.parametrize("name", CASES)
def test_chunks_and_single_tokens(name: str) -> None:
    case, rows = CASES[name], np.arange(2 * LENGTH)
    state = np.zeros((5, 2, *case.state), np.float32)
    wanted_state, wanted = case.reference(*case.args(rows, state))
    lib = library(case)
    got = np.empty_like(wanted)
    for chunk in calls():
        state, got[chunk] = lib["main"](*arrays_in(case.args(chunk, state)))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(state, wanted_state, rtol=1e-5, atol=2e-5)
    assert not np.abs(state[[0, 2, 4]]).any() and not state[:, 0].any()


def library(case: Case) -> Library:
    count = 2 * LENGTH
    assert count not in (*case.state, 5, 2)
    state = np.zeros((5, 2, *case.state), np.float32)
    return build(graph_of(case.name, case.args(np.arange(count), state), dict(case.attrs), symbolic=(count,)))
