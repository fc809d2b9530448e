"""Log-probabilities of compiled models and of transformers' models, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from mlc_errors import UnsupportedError, UsageError
from mlc_evaluation.transformers_model import TransformersModel
from mlc_runtime.llm import LLM

Array = np.ndarray[Any, Any]
BLOCK = 64
"""Positions whose log-probabilities, float64 [BLOCK, V] for each model, are in memory at a time."""


class Scorer(Protocol):
    """A model that returns log-probabilities."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_size(self) -> int | None:
        """The maximum window in tokens, None without a limit."""

    def log_probabilities(self, ids: Sequence[int], first: int) -> Iterator[Array]:
        """Log-probabilities of the token after each of ``ids[first:]``, in blocks float64 [at most BLOCK, V].

        The ids are read with an empty cache.
        """


class CompiledScorer:
    """A compiled model; each call of its functions computes a block of positions."""

    def __init__(self, llm: LLM):
        if llm.model.spec.decoder_start is not None:
            raise UnsupportedError("models with an encoder have no perplexity of a text")
        self.llm, self.model = llm, llm.model

    @property
    def vocab_size(self) -> int:
        return self.model.spec.vocab_size

    @property
    def context_size(self) -> int | None:
        return self.model.spec.context_window_size

    def log_probabilities(self, ids: Sequence[int], first: int) -> Iterator[Array]:
        tokens = self.model.check_ids(ids).tolist()
        with self.model.lock.held(), self.model.pool.lent(1) as (row,):
            if first:
                self.model.prefill([(row, tokens[:first])], np.empty((1, self.vocab_size), np.float32))
            for begin in range(first, len(tokens), BLOCK):
                yield log_softmax(self.model.verify(row, tokens[begin : begin + BLOCK]))


class TransformersScorer:
    """A checkpoint run by transformers in float32."""

    def __init__(self, model: TransformersModel):
        self.model = model

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def context_size(self) -> int | None:
        return None

    def log_probabilities(self, ids: Sequence[int], first: int) -> Iterator[Array]:
        logits = self.model.logits(ids)[first:]
        for begin in range(0, len(logits), BLOCK):
            yield log_softmax(logits[begin : begin + BLOCK])


def log_softmax(logits: Array) -> Array:
    """Log-softmax over the last axis, in float64."""
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def check_same_tokens(models: Sequence[Scorer]) -> None:
    """Raises UsageError if vocabularies have different sizes."""
    sizes = [model.vocab_size for model in models]
    if len(set(sizes)) > 1:
        raise UsageError(f"the models have vocabularies of {', '.join(map(str, sizes))} tokens; expected the same")
