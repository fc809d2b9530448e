"""The generation loop of one answer: stop conditions, streamed text, timings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.penalties import TextTokens
from mlc_runtime.sampler import Drawn, TokenLogprob
from mlc_runtime.sampling import Sampling
from mlc_runtime.session import Session, SessionCache
from mlc_runtime.speculation import Proposer
from mlc_runtime.tokenizer import StopMatcher, Tokenizer

CONTEXT_FULL = "the context is full"
SINKS = 4
"""First tokens that ``overflow="sinks"`` keeps (Xiao et al. 2024)."""


@dataclass(frozen=True)
class GenerationResult:
    """An answer. finish_reason: "stop" (end token or stop text), "length" (max_tokens or context), "cancelled".

    prefill_tokens: prompt tokens that were computed; fewer than prompt_tokens when a prefix was cached. logprobs: one
    per token; None if ``Sampling.top_logprobs`` is None. forgotten: tokens dropped because the context was full.
    guessed, accepted: the numbers of proposed and of accepted draft tokens.
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
    logprobs: tuple[TokenLogprob, ...] | None = None
    forgotten: int = 0
    guessed: int = 0
    accepted: int = 0

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
        self.logprobs: list[TokenLogprob] = []
        self.pieces: list[str] = []
        self.finish_reason: str | None = None
        self.note: str | None = None
        self._rng = np.random.default_rng(None if sampling.seed is None else [sampling.seed, index])
        self._uniforms: deque[float] = deque()
        self._decoder = tokenizer.stream()
        self._stops = StopMatcher(sampling.stop)

    def uniforms(self, count: int = 1) -> list[float]:
        """Random numbers in [0, 1), exact in float32, for the next tokens; ``accept`` consumes the first."""
        while len(self._uniforms) < count:
            self._uniforms.append(float(self._rng.random(dtype=np.float32)))
        return [self._uniforms[i] for i in range(count)]

    def accept(self, drawn: Drawn) -> str:
        """Append a token; returns the text that is final with it. Sets finish_reason when the answer ends."""
        self._uniforms.popleft()
        if drawn.token in self.sampling.eos_ids:
            return self._finish("stop")
        self.token_ids.append(drawn.token)
        self.tokens.add(drawn.token)
        if drawn.logprob is not None:
            self.logprobs.append(drawn.logprob)
        piece, stopped = self._stops.add(self._decoder.add(drawn.token))
        if stopped:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.sampling.max_tokens:
            return self._add(piece) + self._finish("length")
        return self._add(piece)

    def end_of_context(self, max_tokens: int) -> str:
        """End the answer because there is no room for another token; returns the text that was held back."""
        self.note = f"{CONTEXT_FULL}: {max_tokens} tokens"
        return self._finish("length")

    def result(self, prompt_tokens: int, prefill: Timing, decode: Timing) -> GenerationResult:
        """The answer so far."""
        return GenerationResult(
            tuple(self.token_ids),
            "".join(self.pieces),
            self.finish_reason or "cancelled",
            self.note,
            prompt_tokens,
            *prefill,
            *decode,
            logprobs=None if self.sampling.top_logprobs is None else tuple(self.logprobs),
        )

    def _finish(self, reason: str) -> str:
        piece, stopped = self._stops.add(self._decoder.finish())
        self.finish_reason = "stop" if stopped else reason
        return self._add(piece if stopped else piece + self._stops.finish())

    def _add(self, piece: str) -> str:
        if piece:
            self.pieces.append(piece)
        return piece


Timing = tuple[int, float]
"""A number of tokens and the seconds that they took."""


class TextStream:
    """The text of an answer while it is generated: iterate, then read ``result``. Leaving early cancels the answer.

    Several streams may be iterated alternately, and by several threads. proposer: proposes up to ``num_draft`` draft
    tokens at a time, and is closed with the stream.
    """

    def __init__(
        self,
        sessions: SessionCache,
        tokenizer: Tokenizer,
        ids: Sequence[int],
        sampling: Sampling,
        proposer: Proposer | None = None,
        num_draft: int = 0,
    ):
        self._sessions = sessions
        self._prompt = ids
        self._answer = Answer(tokenizer, sampling, ids)
        self._proposer, self._num_draft = proposer, num_draft
        self._prefill: Timing = (0, 0.0)
        self._decode: Timing = (0, 0.0)
        self._forgotten = self._guessed = self._accepted = 0

    @property
    def result(self) -> GenerationResult:
        """The answer so far."""
        return replace(
            self._answer.result(len(self._prompt), self._prefill, self._decode),
            forgotten=self._forgotten,
            guessed=self._guessed,
            accepted=self._accepted,
        )

    def __iter__(self) -> Iterator[str]:
        try:
            with self._sessions.lease(self._prompt) as session:
                yield from self._pieces(session)
        finally:
            if self._proposer is not None:
                self._proposer.close()

    def _pieces(self, session: Session) -> Iterator[str]:
        answer = self._answer
        begin = time.perf_counter()
        computed = session.prefill_to(self._prompt)
        drawn = [self._draw(session)]
        self._prefill = computed, time.perf_counter() - begin
        while True:
            for token in drawn:
                if answer.finish_reason is None and (piece := answer.accept(token)):
                    yield piece
            if answer.finish_reason is not None:
                return
            if len(session.token_ids) == session.max_tokens and not self._forget(session):
                yield from filter(None, [answer.end_of_context(session.max_tokens)])
                return
            begin = time.perf_counter()
            drawn = self._next(session, drawn[-1].token)
            self._decode = self._decode[0] + len(drawn), self._decode[1] + time.perf_counter() - begin

    def _next(self, session: Session, token: int) -> list[Drawn]:
        """Append a token and the accepted draft tokens; returns the accepted tokens and the next sampled one."""
        answer = self._answer
        guesses = self._guesses(session, token)
        if not guesses:
            session.append(token)
            return [self._draw(session)]
        texts = [answer.tokens] * (len(guesses) + 1)
        if answer.sampling.changes_logits:
            texts = [answer.tokens.followed_by(guesses[:count]) for count in range(len(guesses) + 1)]
        drawn = session.verify([token, *guesses], answer.sampling, texts, answer.uniforms(len(texts)))
        self._guessed, self._accepted = self._guessed + len(guesses), self._accepted + len(drawn) - 1
        return drawn

    def _guesses(self, session: Session, token: int) -> list[int]:
        if self._proposer is None:
            return []
        left = session.max_tokens - len(session.token_ids) - 1
        if self._answer.sampling.max_tokens is not None:
            left = min(left, self._answer.sampling.max_tokens - len(self._answer.token_ids) - 1)
        uniforms = self._answer.uniforms(max(min(self._num_draft, left), 0))
        guesses = self._proposer.propose([*session.token_ids, token], uniforms)
        return list(takewhile(lambda guess: 0 <= guess < session.model.spec.vocab_size, guesses))

    def _draw(self, session: Session) -> Drawn:
        return session.draw(self._answer.sampling, self._answer.tokens, *self._answer.uniforms())

    def _forget(self, session: Session) -> bool:
        """Drop the oldest half of a full context and recompute the rest, if ``overflow`` is not ``stop``."""
        overflow = self._answer.sampling.overflow
        if overflow == "stop":
            return False
        sinks = SINKS if overflow == "sinks" else 0
        ids = session.token_ids
        kept = [*ids[:sinks], *ids[sinks + (len(ids) - sinks + 1) // 2 :]]
        self._forgotten += len(ids) - len(kept)
        session.prefill_to(kept)
        return len(kept) < session.max_tokens


def check_overflow(sampling: Sampling, ids: Sequence[int], *, has_source: bool) -> None:
    """Raises UsageError if ``overflow`` drops tokens and the prompt has a source or images, which cannot be dropped."""
    if sampling.overflow != "stop" and (has_source or any(i < 0 for i in ids)):
        what = "sequences with a source" if has_source else "prompts with images"
        raise UsageError(f"overflow is {sampling.overflow!r}; {what} cannot be cut at the beginning", hint="use 'stop'")
