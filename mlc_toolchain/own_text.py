"""Texts that a model writes on its own, on which the inputs of its layers are distributed as in its use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mlc_runtime.decoder import Decoder

SEED = 0


def sampled(model: Decoder, first: Sequence[int], length: int, progress: Callable[[int], None]) -> np.ndarray:
    """Continue sequences of one token each to ``length`` tokens, drawn at temperature 1: int32 [len(first), length].

    first: token ids, at most max_batch_size. progress: called with the number of tokens of each sequence. The same
    library gives the same texts.
    """
    rng, count = np.random.default_rng(SEED), len(first)
    ids = np.empty((count, length), np.int32)
    ids[:, 0] = first
    with model.pool.lent(count) as rows:
        step = model.batch
        step.assign(rows)
        for place in range(1, length):
            progress(place)
            step.input_ids[:count] = ids[:, place - 1]
            step.token_pos[:count] = [model.pool.extend(row, 1) for row in rows]
            step.forward()
            ids[:, place] = drawn(step.logits, rng.random(count))
    progress(length)
    return ids


def drawn(logits: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Tokens drawn from softmax(logits) by inversion: int [n]. logits: float32 [n, V]; uniforms: [n], in [0, 1)."""
    sums = np.cumsum(np.exp(logits - logits.max(-1, keepdims=True)), axis=-1, dtype=np.float64)
    tokens: np.ndarray = (sums[:, :-1] <= (uniforms * sums[:, -1])[:, None]).sum(-1)
    return tokens
