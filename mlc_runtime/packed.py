"""Packed batches: tokens of several sequences concatenated in one call, and the grouping of texts into calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlc_runtime.model import CompiledModel
from mlc_runtime.model_spec import ModelSpec

Prompt = tuple[int, Sequence[int]]  # a row of the pool, and the token ids that it is extended by


@dataclass(frozen=True)
class Packed:
    """Concatenated tokens of several sequences, int32 [n]; lasts: int32 [sequences], each sequence's last index.

    rotary_pos: int32 [axes, n], for models with several position axes, else None.
    """

    ids: np.ndarray
    token_seq: np.ndarray
    token_pos: np.ndarray
    lasts: np.ndarray
    rotary_pos: np.ndarray | None = None

    @staticmethod
    def of(model: CompiledModel, prompts: Sequence[Prompt]) -> Packed:
        """Extend the prompts' sequences in the pool, in order; raises as ``check_ids`` and ``SequencePool.extend``."""
        rows, ids = [row for row, _ in prompts], [model.check_ids(ids) for _, ids in prompts]
        counts = [len(piece) for piece in ids]
        begins = [model.pool.extend(row, count) for row, count in zip(rows, counts, strict=True)]
        places = [np.arange(begin, begin + n, dtype=np.int32) for begin, n in zip(begins, counts, strict=True)]
        token_seq = np.repeat(np.array(rows, np.int32), counts)
        lasts = np.cumsum(counts, dtype=np.int32) - np.int32(1)
        return Packed(np.concatenate(ids), token_seq, np.concatenate(places), lasts)

    def sequences(self) -> Iterator[slice]:
        """The tokens of each sequence."""
        begins = [0, *(self.lasts[:-1] + 1).tolist()]
        return (slice(begin, int(last) + 1) for begin, last in zip(begins, self.lasts, strict=True))

    def chunks(self, size: int) -> Iterator[slice]:
        return (slice(first, min(first + size, len(self.ids))) for first in range(0, len(self.ids), size))


def groups(texts: Sequence[Sequence[int]], spec: ModelSpec) -> Iterator[list[int]]:
    """Group consecutive texts into calls of at most ``max_batch_size`` texts and ``prefill_chunk_size`` tokens.

    Yields lists of indices. A text with more tokens is a group of its own.
    """
    group: list[int] = []
    tokens = 0
    for i, text in enumerate(texts):
        if group and (tokens + len(text) > spec.prefill_chunk_size or len(group) == spec.max_batch_size):
            yield group
            group, tokens = [], 0
        group.append(i)
        tokens += len(text)
    if group:
        yield group
