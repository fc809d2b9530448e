"""The generation loop: sampling settings, what ends an answer, text as it comes, timings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.model import CompiledModel, DecodeStep
from mlc_runtime.session import Session
from mlc_runtime.tokenizer import StopMatcher, Tokenizer

CONTEXT_FULL = "the context is full"


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen and what ends an answer.

    temperature 0 takes the most likely token; top_p in (0, 1] keeps the most likely tokens with that probability in
    sum. max_tokens None: until the context is full. The same seed gives the same answer; None a new one each time.
    eos_ids and stop: tokens and texts that end the answer and are not part of it.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    eos_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}; expected at least 1")
        if not 0.0 <= self.temperature <= 100.0:
            raise UsageError(f"temperature is {self.temperature}; expected 0 to 100")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p is {self.top_p}; expected more than 0 and at most 1")
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"seed is {self.seed}; expected 0 or more")


@dataclass(frozen=True)
class GenerationResult:
    """An answer. finish_reason: "stop" (end token or stop text), "length" (max_tokens or context), "cancelled".

    prefill_tokens counts what was computed: less than the prompt when the beginning was still in the cache.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    note: str | None
    prompt_tokens: int
    prefill_tokens: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Generated tokens per second, without the first, which belongs to the prompt's computation."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Answer:
    """One answer in the making: tokens in, certain text out."""

    def __init__(self, tokenizer: Tokenizer, sampling: Sampling, index: int = 0):
        self.sampling = sampling
        self.token_ids: list[int] = []
        self.pieces: list[str] = []
        self.finish_reason: str | None = None
        self.note: str | None = None
        self._rng = np.random.default_rng(None if sampling.seed is None else [sampling.seed, index])
        self._decoder = tokenizer.stream()
        self._stops = StopMatcher(sampling.stop)

    def uniform(self) -> float:
        """The next random number in [0, 1), exact in float32."""
        return self._rng.random(dtype=np.float32)

    def accept(self, token: int) -> str:
        """Take the next token; returns the text that became certain. Sets finish_reason when the answer ends."""
        if token in self.sampling.eos_ids:
            return self._finish("stop")
        self.token_ids.append(token)
        piece, stopped = self._stops.add(self._decoder.add(token))
        if stopped:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.sampling.max_tokens:
            return self._add(piece) + self._finish("length")
        return self._add(piece)

    def end_of_context(self, max_tokens: int) -> str:
        """End the answer because there is no room for another token; returns the text that was held back."""
        self.note = f"{CONTEXT_FULL}: {max_tokens} tokens"
        return self._finish("length")

    def _finish(self, reason: str) -> str:
        piece, stopped = self._stops.add(self._decoder.finish())
        self.finish_reason = "stop" if stopped else reason
        return self._add(piece if stopped else piece + self._stops.finish())

    def _add(self, piece: str) -> str:
        if piece:
            self.pieces.append(piece)
        return piece


class TextStream:
    """The text of an answer while it is generated: iterate, then read ``result``. Leaving early cancels the answer."""

    def __init__(self, session: Session, tokenizer: Tokenizer, ids: Sequence[int], sampling: Sampling):
        self._session = session
        self._prompt = ids
        self._answer = Answer(tokenizer, sampling)
        self._prefill = self._decode = (0, 0.0)  # tokens, seconds

    @property
    def result(self) -> GenerationResult:
        """The answer so far."""
        return _result(self._answer, len(self._prompt), self._prefill, self._decode)

    def __iter__(self) -> Iterator[str]:
        session, answer = self._session, self._answer
        begin = time.perf_counter()
        computed = session.prefill_to(self._prompt)
        set_sampling(session.step, 0, answer.sampling)
        token = session.sample(answer.uniform())
        self._prefill = computed, time.perf_counter() - begin
        yield from filter(None, [answer.accept(token)])
        while answer.finish_reason is None:
            if session.cache.lengths[0] == session.max_tokens:
                piece = answer.end_of_context(session.max_tokens)
            else:
                begin = time.perf_counter()
                session.decode_step(token)
                token = session.sample(answer.uniform())
                self._decode = self._decode[0] + 1, self._decode[1] + time.perf_counter() - begin
                piece = answer.accept(token)
            if piece:
                yield piece


def generate_batch(
    model: CompiledModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> list[GenerationResult]:
    """Answers to several prompts, decoded together, at most max_batch_size at a time.

    Sequences of different lengths share every step; one that ends leaves the batch. Times are those of the whole batch.
    """
    size = model.spec.max_batch_size
    results: list[GenerationResult] = []
    for first in range(0, len(prompts), size):
        results += _Batch(model, tokenizer, prompts[first : first + size], sampling, first).run()
    return results


class _Batch:
    def __init__(
        self,
        model: CompiledModel,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        first_index: int,
    ):
        self.model, self.prompts = model, prompts
        self.answers = [Answer(tokenizer, sampling, first_index + i) for i in range(len(prompts))]
        self.cache = model.new_cache(len(prompts), max(map(len, prompts)) + (sampling.max_tokens or 1 << 30))

    def run(self) -> list[GenerationResult]:
        active = list(range(len(self.prompts)))
        begin = time.perf_counter()
        step = self._step(active)
        for i, ids in enumerate(self.prompts):
            self.model.prefill(self.cache, i, ids, step.logits[i])
        self._sample(step, active)
        prefill_seconds, begin, decoded = time.perf_counter() - begin, time.perf_counter(), 0
        while remaining := self._remaining(active):
            if remaining != active:
                tokens = {i: int(t) for i, t in zip(active, step.token, strict=True)}
                active, step = remaining, self._step(remaining)
                step.token[:] = [tokens[i] for i in active]
            self._forward(step, active)
            self._sample(step, active)
            decoded += len(active)
        decode = decoded, time.perf_counter() - begin
        total = sum(map(len, self.prompts))
        return [
            _result(a, len(p), (total, prefill_seconds), decode)
            for a, p in zip(self.answers, self.prompts, strict=True)
        ]

    def _step(self, active: Sequence[int]) -> DecodeStep:
        step = DecodeStep(self.model, self.cache, active)
        for row in range(len(active)):
            set_sampling(step, row, self.answers[active[row]].sampling)
        return step

    def _forward(self, step: DecodeStep, active: Sequence[int]) -> None:
        step.input_ids[:] = step.token
        for row, i in enumerate(active):
            step.token_pos[row] = self.cache.extend(i, 1)
        step.forward()

    def _sample(self, step: DecodeStep, active: Sequence[int]) -> None:
        for row, i in enumerate(active):
            step.uniform[row] = self.answers[i].uniform()
        step.sample()
        for row, i in enumerate(active):
            self.answers[i].accept(int(step.token[row]))

    def _remaining(self, active: Sequence[int]) -> list[int]:
        for i in active:
            if self.answers[i].finish_reason is None and self.cache.lengths[i] == self.cache.max_tokens:
                self.answers[i].end_of_context(self.cache.max_tokens)
        return [i for i in active if self.answers[i].finish_reason is None]


def set_sampling(step: DecodeStep, row: int, sampling: Sampling) -> None:
    step.temperature[row], step.top_p[row] = sampling.temperature, sampling.top_p


def _result(
    answer: Answer, prompt_tokens: int, prefill: tuple[int, float], decode: tuple[int, float]
) -> GenerationResult:
    reason = answer.finish_reason or "cancelled"
    text = "".join(answer.pieces)
    return GenerationResult(tuple(answer.token_ids), text, reason, answer.note, prompt_tokens, *prefill, *decode)
