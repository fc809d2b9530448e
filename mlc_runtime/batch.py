"""Answers to several prompts, computed together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from mlc_errors import UsageError
from mlc_runtime.decoder import Decoder
from mlc_runtime.generation import Answer, GenerationResult
from mlc_runtime.sampling import Sampling
from mlc_runtime.tokenizer import Tokenizer


def generate_batch(
    model: Decoder, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> list[GenerationResult]:
    """Answers to several prompts, computed in batches of at most max_batch_size.

    Sequences of different lengths share every call; one that ends leaves the batch. Equal prompts are computed once
    if sequences can be forked. Times are those of the whole batch. Raises UsageError unless overflow is ``stop``.
    """
    if sampling.overflow != "stop":
        raise UsageError(f"overflow is {sampling.overflow!r}; answers that are computed together end with the context")
    size = model.spec.max_batch_size
    results: list[GenerationResult] = []
    for first in range(0, len(prompts), size):
        with model.lock.held():
            results += _Batch(model, tokenizer, prompts[first : first + size], sampling, first).run()
    return results


class _Batch:
    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        first_index: int,
    ):
        self.model, self.prompts, self.sampling = model, prompts, sampling
        self.answers = [Answer(tokenizer, sampling, p, first_index + i) for i, p in enumerate(prompts)]
        self.rows: list[int] = []
        self.tokens: list[int] = []  # the last one of each active answer

    def run(self) -> list[GenerationResult]:
        try:
            return self._run()
        finally:
            for row in self.rows:
                self.model.pool.remove(row)

    def _run(self) -> list[GenerationResult]:
        active, begin = list(range(len(self.prompts))), time.perf_counter()
        computed = self._prefill(active)
        self._draw(active)
        prefill_seconds, begin, decoded = time.perf_counter() - begin, time.perf_counter(), 0
        while remaining := self._remaining(active):
            if remaining != active:
                self.tokens = [self.tokens[active.index(i)] for i in remaining]
                active = remaining
                self._assign(active)
            self._forward(active)
            self._draw(active)
            decoded += len(active)
        decode = decoded, time.perf_counter() - begin
        return [
            answer.result(len(prompt), (computed, prefill_seconds), decode)
            for answer, prompt in zip(self.answers, self.prompts, strict=True)
        ]

    def _prefill(self, active: Sequence[int]) -> int:
        """Create a sequence for each prompt and compute the logits after it; returns the number of tokens computed."""
        distinct = {tuple(ids): i for i, ids in reversed(list(enumerate(self.prompts)))}
        left = list(self.prompts)
        computed = 0
        can_share = self.model.pool.can_fork and all(ids[-1] >= 0 for ids in left)  # an image is not divided
        if can_share and len(distinct) < len(left):
            computed = self._prefill_beginnings(distinct)
            left = [ids[-1:] for ids in left]
        else:
            self.rows += (self.model.pool.add() for _ in left)
        self._assign(active)
        self.model.batch.prefill(list(zip(self.rows, left, strict=True)))
        return computed + sum(map(len, left))

    def _prefill_beginnings(self, distinct: Mapping[tuple[int, ...], int]) -> int:
        """Create sequences of the prompts without their last tokens, forking one sequence for equal prompts."""
        pool, step = self.model.pool, self.model.batch
        owners = {ids: pool.add() for ids in distinct}
        try:
            beginnings = [(row, ids[:-1]) for ids, row in owners.items() if len(ids) > 1]
            if beginnings:
                step.assign([row for row, _ in beginnings])
                step.prefill(beginnings)
            self.rows += (pool.fork(owners[tuple(ids)]) for ids in self.prompts)
        finally:
            for row in owners.values():
                pool.remove(row)
        return sum(len(ids) for _, ids in beginnings)

    def _assign(self, active: Sequence[int]) -> None:
        step = self.model.batch
        step.assign([self.rows[i] for i in active])
        step.sampler.assign([self.sampling] * len(active))

    def _forward(self, active: Sequence[int]) -> None:
        step = self.model.batch
        step.input_ids[: len(active)] = self.tokens
        for element, i in enumerate(active):
            step.token_pos[element] = self.model.pool.extend(self.rows[i], 1)
        step.forward()

    def _draw(self, active: Sequence[int]) -> None:
        answers = [self.answers[i] for i in active]
        drawn = self.model.batch.sampler.draw([a.tokens for a in answers], [u for a in answers for u in a.uniforms()])
        for answer, token in zip(answers, drawn, strict=True):
            answer.accept(token)
        self.tokens = [d.token for d in drawn]

    def _remaining(self, active: Sequence[int]) -> list[int]:
        pool = self.model.pool
        for i in active:
            if self.answers[i].finish_reason is None and pool.lengths[self.rows[i]] == pool.max_tokens:
                self.answers[i].end_of_context(pool.max_tokens)
        return [i for i in active if self.answers[i].finish_reason is None]
