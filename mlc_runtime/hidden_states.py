"""Sequences that keep their hidden states for a draft head.

A step runs the same layers as ``Decoder``'s, and the output head in a separate call: logits are bitwise equal if both
use the same kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.decoder import Decoder, DecodeStep, unit_axis
from mlc_runtime.memory import Array
from mlc_runtime.model import Call
from mlc_runtime.packed import Prompt
from mlc_runtime.penalties import TextTokens
from mlc_runtime.sampler import Drawn
from mlc_runtime.sampling import Sampling
from mlc_runtime.session import Session, SessionCache

STEP, LOGITS = "batch_decode_to_last_hidden_states", "get_logits"


def check_hidden_states(model: Decoder) -> None:
    """Raises UsageError if the model's library lacks the functions for draft heads."""
    missing = [name for name in (STEP, LOGITS) if name not in model.library.functions]
    if missing:
        raise UsageError(
            f"the model's library has no function {missing[0]}, which draft heads take",
            where=[str(model.library.path)],
            hint="compile it again with --draft-heads",
        )


class HiddenStep(DecodeStep):
    """A decode step that keeps the hidden states of its tokens, float32 [capacity, D]."""

    def __init__(self, model: Decoder, capacity: int):
        super().__init__(model, capacity)
        self._hidden = self._memory.mirrored((capacity, model.hidden_size), np.dtype(np.float32))

    def states(self, count: int) -> np.ndarray:
        """The hidden states of the first ``count`` tokens of the last call, as a new array [count, D]."""
        self._memory.fetch(self._hidden)
        return self._hidden[:count].copy()

    def prefill(self, prompts: Sequence[Prompt]) -> None:
        """See ``DecodeStep.prefill``; for one prompt, whose hidden states are then ``prompt_states``."""
        ((row, ids),) = prompts
        self.prompt_states = self._model.extend(row, ids)
        self._model.bind(LOGITS, {"hidden_states": self.prompt_states[-1:].copy()}, [self._logits[:1]])()

    def _bind_decode(self, inputs: Mapping[str, Array], logits: np.ndarray) -> Call:
        hidden = self._hidden[: len(logits)]
        layers = self._model.bind(STEP, inputs, [unit_axis(hidden)])
        head = self._model.bind(LOGITS, {"hidden_states": hidden}, [logits])

        def both() -> None:
            layers()
            head()

        return both


class HiddenSession(Session):
    """A sequence that keeps the hidden states of the tokens appended since the last ``take_states``."""

    def __init__(self, model: Decoder, row: int, token_ids: Sequence[int]):
        super().__init__(model, row, token_ids)
        self._begin, self._states = 0, np.empty((0, model.hidden_size), np.float32)

    def take_states(self) -> tuple[int, np.ndarray]:
        """Remove the kept hidden states; returns the position of the first and the states, float32 [n, D]."""
        begin, states = self._begin, self._states
        self._begin, self._states = begin + len(states), states[:0]
        return begin, states

    def extend(self, ids: Sequence[int]) -> None:
        super().extend(ids)
        assert isinstance(self.step, HiddenStep)
        self._keep(self.step.prompt_states)

    def append(self, token: int) -> None:
        super().append(token)
        assert isinstance(self.step, HiddenStep)
        self._keep(self.step.states(1))

    def reusable(self, ids: Sequence[int]) -> int:
        """0: the hidden states of a cached prefix are not available."""
        return 0

    def _forget(self, length: int) -> None:
        super()._forget(length)
        self._begin = min(self._begin, length)
        self._states = self._states[: length - self._begin]

    def _verified(
        self,
        begin: int,
        ids: Sequence[int],
        sampling: Sampling,
        texts: Sequence[TextTokens],
        uniforms: Sequence[float],
    ) -> list[Drawn]:
        drawn = super()._verified(begin, ids, sampling, texts, uniforms)
        assert isinstance(self._verify_step, HiddenStep)
        self._keep(self._verify_step.states(len(ids)))
        return drawn

    def _keep(self, states: np.ndarray) -> None:
        self._states = np.concatenate([self._states, states])

    def _make_step(self, capacity: int) -> DecodeStep:
        return HiddenStep(self.model, capacity)


class HiddenSessions(SessionCache):
    """A new session for each stream, closed after it. ``session`` is that of the running stream."""

    def __init__(self, model: Decoder):
        super().__init__(model)
        self.session: HiddenSession | None = None

    @contextmanager
    def lease(self, ids: Sequence[int]) -> Iterator[Session]:
        with self.model.lock.held():
            self.session = HiddenSession(self.model, self.model.pool.add(), [])
        try:
            yield self.session
        finally:
            self.session.close()
            self.session = None
