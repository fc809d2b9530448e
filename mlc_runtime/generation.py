"""The generation loop: sampling settings, stop conditions, streamed text, timings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.decoder import Decoder, DecodeStep
from mlc_runtime.penalties import NO_PENALTIES, Penalties, TextTokens
from mlc_runtime.session import Session, SessionCache
from mlc_runtime.tokenizer import StopMatcher, Tokenizer

CONTEXT_FULL = "the context is full"


@dataclass(frozen=True)
class Sampling:
    """Sampling settings and stop conditions.

    temperature 0 takes the most likely token; top_p in (0, 1] keeps the most likely tokens up to that cumulative
    probability. max_tokens None: until the context is full. seed None: a new one each time.
    eos_ids and stop: tokens and texts that end the answer and are not part of it. penalties: of tokens that the text
    has already. logit_bias: token ids, and what is added to their logits before penalties and temperature, -100 to 100.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    eos_ids: frozenset[int] = frozenset()
    penalties: Penalties = NO_PENALTIES
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_tokens is not None and not (isinstance(self.max_tokens, int | np.integer) and self.max_tokens >= 1):
            raise UsageError(f"max_tokens is {self.max_tokens}; expected an integer of at least 1")
        if not 0.0 <= self.temperature <= 100.0:
            raise UsageError(f"temperature is {self.temperature}; expected 0 to 100")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p is {self.top_p}; expected more than 0 and at most 1")
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"seed is {self.seed}; expected 0 or more")
        for token, bias in self.logit_bias.items():
            if not (isinstance(token, int | np.integer) and token >= 0):
                raise UsageError(f"logit_bias has the token id {token!r}; expected an integer of at least 0")
            if not -100.0 <= bias <= 100.0:
                raise UsageError(f"logit_bias of token {token} is {bias}; expected -100 to 100")

    @property
    def changes_logits(self) -> bool:
        """Whether there are penalties or biases."""
        return bool(self.penalties or self.logit_bias)


@dataclass(frozen=True)
class GenerationResult:
    """An answer. finish_reason: "stop" (end token or stop text), "length" (max_tokens or context), "cancelled".

    prefill_tokens: prompt tokens that were computed; fewer than prompt_tokens when a prefix was cached.
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
        """Generated tokens per second, without the first, which is part of the prefill."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Answer:
    """The state of one answer during generation: token ids, decoded text, stop conditions."""

    def __init__(self, tokenizer: Tokenizer, sampling: Sampling, prompt: Sequence[int], index: int = 0):
        self.sampling = sampling
        self.tokens = TextTokens(prompt if sampling.penalties else (), sampling.logit_bias)
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
        """Append a token; returns the text that is final with it. Sets finish_reason when the answer ends."""
        if token in self.sampling.eos_ids:
            return self._finish("stop")
        self.token_ids.append(token)
        self.tokens.add(token)
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
    """The text of an answer while it is generated: iterate, then read ``result``. Leaving early cancels the answer.

    Several streams may be iterated in turns, and by several threads.
    """

    def __init__(self, sessions: SessionCache, tokenizer: Tokenizer, ids: Sequence[int], sampling: Sampling):
        self._sessions = sessions
        self._prompt = ids
        self._answer = Answer(tokenizer, sampling, ids)
        self._prefill = self._decode = (0, 0.0)  # tokens, seconds

    @property
    def result(self) -> GenerationResult:
        """The answer so far."""
        return _result(self._answer, len(self._prompt), self._prefill, self._decode)

    def __iter__(self) -> Iterator[str]:
        with self._sessions.lease(self._prompt) as session:
            yield from self._pieces(session)

    def _pieces(self, session: Session) -> Iterator[str]:
        answer = self._answer
        begin = time.perf_counter()
        computed = session.prefill_to(self._prompt)
        set_sampling(session.step, 0, answer.sampling)
        token = _draw(session, answer)
        self._prefill = computed, time.perf_counter() - begin
        yield from filter(None, [answer.accept(token)])
        while answer.finish_reason is None:
            if len(session.token_ids) == session.max_tokens:
                piece = answer.end_of_context(session.max_tokens)
            else:
                begin = time.perf_counter()
                session.append(token)
                token = _draw(session, answer)
                self._decode = self._decode[0] + 1, self._decode[1] + time.perf_counter() - begin
                piece = answer.accept(token)
            if piece:
                yield piece


def generate_batch(
    model: Decoder, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> list[GenerationResult]:
    """Answers to several prompts, computed together, at most max_batch_size at a time.

    Sequences of different lengths share every call; one that ends leaves the batch. Times are those of the whole batch.
    """
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

    def run(self) -> list[GenerationResult]:
        try:
            for _ in self.prompts:
                self.rows.append(self.model.pool.add())
            return self._run()
        finally:
            for row in self.rows:
                self.model.pool.remove(row)

    def _run(self) -> list[GenerationResult]:
        step, active, begin = self.model.batch, list(range(len(self.prompts))), time.perf_counter()
        self._assign(step, active)
        step.prefill(list(zip(self.rows, self.prompts, strict=True)))
        self._sample(step, active)
        prefill_seconds, begin, decoded = time.perf_counter() - begin, time.perf_counter(), 0
        while remaining := self._remaining(active):
            if remaining != active:
                stays = [active.index(i) for i in remaining]
                step.token[: len(stays)] = step.token[stays]
                active = remaining
                self._assign(step, active)
            self._forward(step, active)
            self._sample(step, active)
            decoded += len(active)
        decode = decoded, time.perf_counter() - begin
        total = sum(map(len, self.prompts))
        return [
            _result(a, len(p), (total, prefill_seconds), decode)
            for a, p in zip(self.answers, self.prompts, strict=True)
        ]

    def _assign(self, step: DecodeStep, active: Sequence[int]) -> None:
        step.assign([self.rows[i] for i in active])
        for element in range(len(active)):
            set_sampling(step, element, self.sampling)

    def _forward(self, step: DecodeStep, active: Sequence[int]) -> None:
        step.input_ids[:] = step.token
        for element, i in enumerate(active):
            step.token_pos[element] = self.model.pool.extend(self.rows[i], 1)
        step.forward()

    def _sample(self, step: DecodeStep, active: Sequence[int]) -> None:
        for element, i in enumerate(active):
            step.uniform[element] = self.answers[i].uniform()
        if self.sampling.changes_logits:
            step.penalize([self.answers[i].tokens for i in active])
        step.sample()
        for element, i in enumerate(active):
            self.answers[i].accept(int(step.token[element]))

    def _remaining(self, active: Sequence[int]) -> list[int]:
        pool = self.model.pool
        for i in active:
            if self.answers[i].finish_reason is None and pool.lengths[self.rows[i]] == pool.max_tokens:
                self.answers[i].end_of_context(pool.max_tokens)
        return [i for i in active if self.answers[i].finish_reason is None]


def set_sampling(step: DecodeStep, element: int, sampling: Sampling) -> None:
    """Write the settings of a sequence."""
    penalties = sampling.penalties
    step.temperature[element], step.top_p[element] = sampling.temperature, sampling.top_p
    step.presence[element], step.frequency[element] = penalties.presence, penalties.frequency
    step.repetition[element] = penalties.repetition


def _draw(session: Session, answer: Answer) -> int:
    """The next token of an answer."""
    if answer.sampling.changes_logits:
        session.penalize(answer.tokens)
    return session.sample(answer.uniform())


def _result(
    answer: Answer, prompt_tokens: int, prefill: tuple[int, float], decode: tuple[int, float]
) -> GenerationResult:
    reason = answer.finish_reason or "cancelled"
    text = "".join(answer.pieces)
    return GenerationResult(tuple(answer.token_ids), text, reason, answer.note, prompt_tokens, *prefill, *decode)
