"""Sampling by the library: penalties, filters, random draws, and log probabilities of alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlc_runtime.model import Call, CompiledModel
from mlc_runtime.penalties import PenaltyStep, TextTokens
from mlc_runtime.sampling import MAX_TOP_LOGPROBS, Sampling

ROW = 16  # elements: rows of settings begin at multiples of a cache line
DRAW, DRAW_FILTERED, LOGPROBS = "sample", "sample_filtered", "logprobs"
PENALTIES = ("presence", "frequency", "repetition")
INPUTS = {
    DRAW: ("temperature", "top_p", "uniform"),
    DRAW_FILTERED: ("temperature", "top_k", "top_p", "min_p", "typical_p", "uniform"),
}
SETTINGS = ("top_k", "temperature", "top_p", "min_p", "typical_p", "uniform", *PENALTIES)
GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log probability, and the most probable tokens with theirs, in descending order.

    The distribution is that after biases and penalties, before temperature and filters.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Drawn:
    """A sampled token, and its log probability if the settings ask for it."""

    token: int
    logprob: TokenLogprob | None = None


class Sampler:
    """Samples tokens from the rows of ``logits``, float32 [capacity, V], with separate settings for each row.

    Calls are bound once for each power of two of rows. Raises MLCError when the library lacks a function.
    """

    def __init__(self, model: CompiledModel, logits: np.ndarray):
        self._model, self._memory, self._logits, self._context = model, model.memory, logits, model.context
        capacity = len(logits)
        self._arrays = self._memory.mirrored((len(SETTINGS), -(-capacity // ROW) * ROW), np.dtype(np.int32))
        floats = self._arrays.view(np.float32)
        self._settings = {name: floats[i, :capacity] for i, name in enumerate(SETTINGS)}
        self._settings["top_k"] = self._arrays[SETTINGS.index("top_k"), :capacity]
        self._token = self._memory.mirrored((capacity,), np.dtype(np.int32))
        self._bound: dict[tuple[str, int], Call] = {}
        self._assigned: list[Sampling] | None = None
        self.assign([])

    def assign(self, settings: list[Sampling]) -> None:
        """Set the settings of the first rows; the other rows are greedy."""
        if settings == self._assigned:
            return
        self._assigned = list(settings)
        for name, values in self._settings.items():
            values[:] = _setting(GREEDY, name)
            values[: len(settings)] = [_setting(s, name) for s in settings]
        self._draw = DRAW if all(s.filters.only_top_p for s in settings) else DRAW_FILTERED
        self._changes_logits = any(s.changes_logits for s in settings)
        self._top_logprobs = [s.top_logprobs for s in settings]

    def draw(self, texts: Sequence[TextTokens], uniforms: Sequence[float]) -> list[Drawn]:
        """Sample a token for each of the first rows. texts: for penalties and biases; uniforms: in [0, 1)."""
        if self._changes_logits:
            self.penalize(texts)
        tokens = self.sample(uniforms)
        if all(count is None for count in self._top_logprobs):
            return [Drawn(token) for token in tokens]
        found = self._logprobs(len(tokens))
        return [
            Drawn(token, None if n is None else TokenLogprob(token, logprob, alternatives[:n]))
            for token, n, (logprob, alternatives) in zip(tokens, self._top_logprobs, found, strict=False)
        ]

    def penalize(self, texts: Sequence[TextTokens]) -> None:
        """Apply biases and penalties to the logits of the first rows."""
        _ = self._context.handle  # raises when the model is closed; the calls hold the raw handle
        self._memory.send(self._arrays)
        self._penalties.apply(texts)

    def sample(self, uniforms: Sequence[float]) -> list[int]:
        """Sample from the logits of the first rows as they are; temperature 0 takes the most likely token."""
        _ = self._context.handle
        self._settings["uniform"][: len(uniforms)] = uniforms
        self._memory.send(self._arrays)
        size = self._size(len(uniforms))
        if (self._draw, size) not in self._bound:
            inputs = {name: self._settings[name][:size] for name in INPUTS[self._draw]}
            self._bound[self._draw, size] = self._model.bind(
                self._draw, {"logits": self._logits[:size], **inputs}, [self._token[:size]]
            )
        self._bound[self._draw, size]()
        self._memory.fetch(self._token)
        return self._token[: len(uniforms)].tolist()

    def _logprobs(self, count: int) -> list[tuple[float, tuple[tuple[int, float], ...]]]:
        """For the first rows: the log probability of ``_token``, and the largest ones with their tokens."""
        size = self._size(count)
        chosen, top, tokens = self._alternatives
        if (LOGPROBS, size) not in self._bound:
            inputs = {"logits": self._logits[:size], "token": self._token[:size]}
            self._bound[LOGPROBS, size] = self._model.bind(LOGPROBS, inputs, [chosen[:size], top[:size], tokens[:size]])
        self._bound[LOGPROBS, size]()
        for array in (chosen, top, tokens):
            self._memory.fetch(array)
        return [(float(chosen[i]), tuple(zip(tokens[i].tolist(), top[i].tolist(), strict=True))) for i in range(count)]

    def _size(self, count: int) -> int:
        return min(1 << (count - 1).bit_length(), len(self._logits))

    @cached_property
    def _alternatives(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        capacity, width = len(self._logits), min(MAX_TOP_LOGPROBS, self._model.spec.vocab_size)
        mirrored, number = self._memory.mirrored, np.dtype(np.float32)
        return (
            mirrored((capacity,), number),
            mirrored((capacity, width), number),
            mirrored((capacity, width), np.dtype(np.int32)),
        )

    @cached_property
    def _penalties(self) -> PenaltyStep:
        return PenaltyStep(self._model, self._logits, {name: self._settings[name] for name in PENALTIES})


def _setting(sampling: Sampling, name: str) -> float:
    if name == "uniform":
        return 0.0
    owners = (sampling.penalties, sampling.filters, sampling)
    return next(float(getattr(owner, name)) for owner in owners if hasattr(owner, name))
