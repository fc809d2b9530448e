"""One sequence of tokens in the model's pool, and the sessions that streams leave to each other."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.decoder import Decoder, DecodeStep


class Session:
    """A sequence that is extended by prompts and by single tokens, cut back, and forked.

    ``token_ids`` are its tokens. ``logits``, float32 [V], are those after the last computed token; the array is
    overwritten by the next call. The sequence leaves the pool with the object, or by ``close``.
    """

    def __init__(self, model: Decoder, row: int, token_ids: Sequence[int]):
        """row: of the model's pool, with the sequence ``token_ids``; it belongs to the session from now on."""
        self.model, self.pool, self.row, self.token_ids = model, model.pool, row, list(token_ids)
        self._finalizer = weakref.finalize(self, self.pool.retire, row)
        self._finalizer.atexit = False
        self.step = DecodeStep(model, 1)
        self.step.assign([row])

    @staticmethod
    def empty(model: Decoder, max_tokens: int | None = None) -> Session:
        """A new sequence that may grow to ``max_tokens``, at most and by default the context window."""
        return Session(model, model.pool.add(max_tokens), [])

    @property
    def logits(self) -> np.ndarray:
        return self.step.logits[0]

    @property
    def max_tokens(self) -> int:
        return self.pool.limit(self.row)

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        """Append a prompt of any length; returns ``logits``. Raises ResourceError when the context is full."""
        begin = len(self.token_ids)
        try:
            self.model.prefill([(self.row, ids)], self.step.logits)
        except BaseException:
            self.truncate(begin if self.pool.can_truncate(self.row, begin) else 0)
            raise
        self.token_ids.extend(map(int, ids))
        return self.logits

    def decode_step(self, token: int) -> np.ndarray:
        """Append one token; returns ``logits``. Raises ResourceError when the context is full."""
        if not 0 <= token < self.model.spec.vocab_size:
            raise UsageError(f"token id is {token}; expected 0 to {self.model.spec.vocab_size - 1}")
        step = self.step
        step.token_pos[0] = self.pool.extend(self.row, 1)
        step.input_ids[0] = token
        step.forward()
        self.token_ids.append(token)
        return step.logits[0]

    def sample(self, uniform: float = 0.0) -> int:
        """A token drawn from ``logits`` with ``step.temperature`` and ``step.top_p``; uniform in [0, 1)."""
        step = self.step
        step.uniform[0] = uniform
        step.sample()
        return int(step.token[0])

    def prefill_to(self, ids: Sequence[int]) -> int:
        """Make ``ids`` the content; only what differs from the present content is computed. Returns that number.

        Raises, and changes nothing, when ``ids`` do not fit.
        """
        if len(ids) > self.max_tokens:
            raise UsageError(
                f"the prompt has {len(ids)} tokens; the context holds {self.max_tokens}",
                hint="shorten the prompt, or compile with a larger context_window_size",
            )
        ids = self.model.check_ids(ids).tolist()
        common = self.reusable(ids)
        self.truncate(common)
        self.prefill(ids[common:])
        return len(ids) - common

    def reusable(self, ids: Sequence[int]) -> int:
        """How many first tokens of the prompt ``ids`` need not be computed: not its last one, whose logits it needs."""
        common = _common_prefix(self.token_ids, ids[:-1])
        return common if self.pool.can_truncate(self.row, common) else 0

    def truncate(self, length: int) -> None:
        """Forget the tokens from position ``length`` on. ``logits`` stay those of the last computed token.

        Raises UsageError where ``SequencePool.can_truncate`` is false.
        """
        self.pool.truncate(self.row, length)
        del self.token_ids[length:]

    def reset(self) -> None:
        self.truncate(0)

    def fork(self, length: int | None = None) -> Session:
        """A new session with the first ``length`` tokens, by default all. Raises as ``truncate`` does."""
        return Session(self.model, self.pool.fork(self.row, length, self.max_tokens), self.token_ids[:length])

    def close(self) -> None:
        """Free the sequence's memory at once; the object cannot be used any more."""
        if self._finalizer.detach():
            self.pool.remove(self.row)


class SessionCache:
    """Sessions for streams: each has its own while it runs, and the last one is kept for the prompt that follows it."""

    def __init__(self, model: Decoder):
        self._model = model
        self._idle: Session | None = None
        self._busy: list[Session] = []

    @property
    def idle(self) -> Session:
        """The session that was used last and is free; a new one when there is none."""
        if self._idle is None:
            self._idle = Session.empty(self._model)
        return self._idle

    @contextmanager
    def lease(self, ids: Sequence[int]) -> Iterator[Session]:
        """A session for the prompt ``ids``: the free one, or a fork of one at work that has more in common with it."""
        session = self._choose(ids)
        self._busy.append(session)
        try:
            yield session
        finally:
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
