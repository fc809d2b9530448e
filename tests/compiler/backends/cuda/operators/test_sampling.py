"""Top-p sampling on a GPU, against the operator's definition in the interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.relax.ops.sampling import HALVINGS
from tests.compiler.backends.cuda.operators.simulated import simulate

BOUNDS = [(0.9, 0.0), (0.9, 0.37), (0.9, 0.999), (0.3, 0.6), (1.0, 0.5), (1.0, 0.0), (0.0, 0.7)]


def defined(probs: np.ndarray, top_p: float, uniform: float) -> int:
    """The token given by the operator's definition."""
    low, high = np.float32(0), probs.max()
    for _ in range(HALVINGS if top_p < 1 else 0):
        middle = np.float32((low + high) * np.float32(0.5))
        low, high = (middle, high) if probs[probs >= middle].sum(dtype=np.float64) >= top_p else (low, middle)
    kept = np.where(probs >= low, probs, 0).astype(np.float64)
    before = np.cumsum(kept) - kept
    return int(np.flatnonzero((before <= uniform * kept.sum()) & (kept > 0))[-1])


@settings(max_examples=3)
@given(vocabulary=st.integers(1, 9000), spread=st.floats(0.1, 8), seed=st.integers(0, 99))
def test_tokens(vocabulary: int, spread: float, seed: int):
    logits = np.random.default_rng(seed).standard_normal((len(BOUNDS), vocabulary)) * spread
    power = np.exp(logits - logits.max(1, keepdims=True))
    probs = (power / power.sum(1, keepdims=True)).astype(np.float32)
    top_p, uniform = (np.array(column, np.float32) for column in zip(*BOUNDS, strict=True))
    got = simulate("nn.sample_top_p", probs, top_p, uniform)
    assert np.asarray(got).tolist() == [defined(p, *bound) for p, bound in zip(probs, BOUNDS, strict=True)]


def test_a_certain_token_is_taken():
    """What is left of the probabilities at temperature 0."""
    probs = np.zeros((3, 4100), np.float32)
    tokens = [0, 4099, 2048]
    probs[np.arange(3), tokens] = 1
    rows = (np.array(x, np.float32) for x in ([0.9, 0.5, 1.0], [0.0, 0.99, 0.5]))
    assert np.asarray(simulate("nn.sample_top_p", probs, *rows)).tolist() == tokens
