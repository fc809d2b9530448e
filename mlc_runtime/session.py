"""One sequence of tokens in the model's pool, and the cache of sessions that streams reuse."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.decoder import Decoder, DecodeStep
from mlc_runtime.penalties import TextTokens
from mlc_runtime.sampler import Drawn
from mlc_runtime.sampling import Sampling

P = ParamSpec("P")
R = TypeVar("R")


def _in_turn(method: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[Session, P], R]:
    """Decorate a method to hold the model's lock."""

    @wraps(method)
    def waiting(self: Session, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.model.lock.held():
            return method(self, *args, **kwargs)

    return waiting


class Session:
    """A sequence that can be extended by prompts and by single tokens, truncated and forked.

    ``token_ids`` are its tokens. ``logits``, float32 [V], are those after the last computed token; the array is
    overwritten by the next call. The sequence is removed from the pool with the object, or by ``close``. Different
    threads may use different sessions of one model.
    """

    def __init__(self, model: Decoder, row: int, token_ids: Sequence[int]):
        """row: the row of the model's pool that holds ``token_ids``; the session takes ownership."""
        self.model, self.pool, self.row, self.token_ids = model, model.pool, row, list(token_ids)
        self._owned: dict[int, weakref.finalize] = {}
        self._own(row)
        self.step = self._make_step(1)
        self.step.assign([row])
        self._verify_step: DecodeStep | None = None
        self._spare: int | None = None  # a row that holds recurrent states from before the draft tokens

    @staticmethod
    def empty(model: Decoder, max_tokens: int | None = None) -> Session:
        """A new, empty session. max_tokens: maximum length, at most and by default the context window."""
        with model.lock.held():
            return Session(model, model.pool.add(max_tokens), [])

    def _make_step(self, capacity: int) -> DecodeStep:
        return DecodeStep(self.model, capacity)

    @property
    @_in_turn
    def logits(self) -> np.ndarray:
        return self.step.logits[0]

    @property
    def max_tokens(self) -> int:
        return self.pool.limit(self.row)

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        """Append a prompt of any length; returns ``logits``. Raises ResourceError when the context is full."""
        self.extend(ids)
        return self.logits

    @_in_turn
    def extend(self, ids: Sequence[int]) -> None:
        """Append a prompt of any length and compute ``logits``. Raises ResourceError when the context is full."""
        begin = len(self.token_ids)
        try:
            self.step.prefill([(self.row, ids)])
        except BaseException:
            self.truncate(begin if self.pool.can_truncate(self.row, begin) else 0)
            raise
        self.token_ids.extend(map(int, ids))

    def decode_step(self, token: int) -> np.ndarray:
        """Append one token; returns ``logits``. Raises ResourceError when the context is full."""
        self.append(token)
        return self.logits

    @_in_turn
    def append(self, token: int) -> None:
        """Append one token and compute ``logits``. Raises ResourceError when the context is full."""
        if not 0 <= token < self.model.spec.vocab_size:
            raise UsageError(f"token id is {token}; expected 0 to {self.model.spec.vocab_size - 1}")
        step = self.step
        step.token_pos[0] = self.pool.extend(self.row, 1)
        step.input_ids[0] = token
        step.forward()
        self.token_ids.append(token)

    @_in_turn
    def draw(self, sampling: Sampling, text: TextTokens, uniform: float) -> Drawn:
        """Sample a token from ``logits``. text: for biases and penalties, applied in place; uniform: in [0, 1)."""
        self.step.sampler.assign([sampling])
        return self.step.sampler.draw([text], [uniform])[0]

    @_in_turn
    def sample(self, uniform: float = 0.0) -> int:
        """Sample a token from ``logits`` with the settings of the last ``draw``; before any, the most likely one."""
        return self.step.sampler.sample([uniform])[0]

    @_in_turn
    def verify(
        self, ids: Sequence[int], sampling: Sampling, texts: Sequence[TextTokens], uniforms: Sequence[float]
    ) -> list[Drawn]:
        """Append the first of ``ids``, then draft tokens, the others, as long as each equals the sampled token.

        Returns the sampled tokens: those that were appended after the first one, and one more. texts, uniforms: the
        arguments of ``draw`` for each of ``ids``. Raises ResourceError when the context is full.
        """
        self._save()
        begin = self.pool.extend(self.row, len(ids))
        self.token_ids.extend(ids)
        try:
            drawn = self._verified(begin, ids, sampling, texts, uniforms)
        except BaseException:
            self._roll_back(begin, ())
            raise
        accepted = _common_prefix([d.token for d in drawn], ids[1:])
        if accepted + 1 < len(ids):
            self._roll_back(begin, ids[: accepted + 1])
        return drawn[: accepted + 1]

    def _save(self) -> None:
        """Save recurrent states, which cannot be truncated, for ``_roll_back``."""
        if self.pool.can_roll_back:
            return
        if self._spare is None:
            self._spare = self.pool.add()
            self._own(self._spare)
        self.pool.save(self.row, self._spare)

    def _roll_back(self, begin: int, kept: Sequence[int]) -> None:
        """Truncate the sequence to length ``begin``, followed by the tokens ``kept``.

        Recurrent states are restored from ``_save``, and the tokens recomputed.
        """
        if self._spare is None:
            self.truncate(begin + len(kept))
            return
        self.pool.restore(self.row, self._spare, begin)
        self._forget(begin + len(kept))
        if kept:
            assert self._verify_step is not None
            self._verify_step.extend(self.row, self.pool.extend(self.row, len(kept)), kept)

    def _verified(
        self,
        begin: int,
        ids: Sequence[int],
        sampling: Sampling,
        texts: Sequence[TextTokens],
        uniforms: Sequence[float],
    ) -> list[Drawn]:
        if self._verify_step is None or self._verify_step.capacity < len(ids):
            self._verify_step = self._make_step(len(ids))
        step = self._verify_step
        step.extend(self.row, begin, ids)
        step.sampler.assign([sampling] * len(ids))
        return step.sampler.draw(texts, uniforms)

    @_in_turn
    def prefill_to(self, ids: Sequence[int]) -> int:
        """Replace the sequence by ``ids``, reusing a common prefix. Returns the number of tokens computed.

        Raises UsageError, with no effect, when ``ids`` do not fit.
        """
        if len(ids) > self.max_tokens:
            raise UsageError(
                f"the prompt has {len(ids)} tokens; the context holds {self.max_tokens}",
                hint="shorten the prompt, or compile with a larger context_window_size",
            )
        ids = self.model.check_ids(ids).tolist()
        common = self.reusable(ids)
        self.truncate(common)
        self.extend(ids[common:])
        return len(ids) - common

    def reusable(self, ids: Sequence[int]) -> int:
        """The number of leading tokens of ``ids`` that are cached; never the last one, whose logits are needed."""
        if self.model.spec.decoder_start is not None:  # a source is encoded as a whole
            return 0
        common = _common_prefix(self.token_ids, ids[:-1])
        return common if self.pool.can_truncate(self.row, common) else 0

    @_in_turn
    def truncate(self, length: int) -> None:
        """Remove the tokens from position ``length`` on. ``logits`` stay those of the last computed token.

        Raises UsageError where ``SequencePool.can_truncate`` is false.
        """
        self.pool.truncate(self.row, length)
        self._forget(length)

    def _forget(self, length: int) -> None:
        """Drop the session's own data on the tokens from ``length`` on."""
        del self.token_ids[length:]

    def reset(self) -> None:
        self.truncate(0)

    @_in_turn
    def fork(self, length: int | None = None) -> Session:
        """A new session with the first ``length`` tokens, by default all. Raises as ``truncate`` does."""
        return Session(self.model, self.pool.fork(self.row, length, self.max_tokens), self.token_ids[:length])

    @_in_turn
    def close(self) -> None:
        """Free the sequence's memory immediately; the object cannot be used afterwards."""
        for row, finalizer in self._owned.items():
            if finalizer.detach():
                self.pool.remove(row)

    def _own(self, row: int) -> None:
        """Register a row of the pool to be removed with the session."""
        self._owned[row] = weakref.finalize(self, self.pool.retire, row)
        self._owned[row].atexit = False


class SessionCache:
    """Sessions for streams: one per running stream; the most recently used one is kept for the next prompt."""

    def __init__(self, model: Decoder):
        self.model = model
        self._idle: Session | None = None
        self._busy: list[Session] = []

    @property
    def idle(self) -> Session:
        """The most recently used idle session, or a new one."""
        if self._idle is None:
            self._idle = Session.empty(self.model)
        return self._idle

    @contextmanager
    def lease(self, ids: Sequence[int]) -> Iterator[Session]:
        """A session for the prompt ``ids``: the idle one, or a fork of a busy one that shares a longer prefix."""
        with self.model.lock.held():
            session = self._choose(ids)
            self._busy.append(session)
        try:
            yield session
        finally:
            with self.model.lock.held():
                self._busy.remove(session)
                if self._idle is not None:
                    self._idle.close()
                self._idle = session

    def _choose(self, ids: Sequence[int]) -> Session:
        common = self._idle.reusable(ids) if self._idle is not None else 0
        nearest = max(self._busy, key=lambda busy: busy.reusable(ids), default=None)
        if nearest is not None and (shared := nearest.reusable(ids)) > common:
            return nearest.fork(shared)
        session, self._idle = self.idle, None
        return session


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
