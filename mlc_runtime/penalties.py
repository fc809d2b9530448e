"""Penalties of tokens that a text has already: the tokens of each text, and the library's function on their arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.model import Call, CompiledModel

FUNCTION = "penalize"
SMALLEST_WIDTH = 256


@dataclass(frozen=True)
class Penalties:
    """What is taken off the logits of tokens that a text has already.

    presence and frequency, -2 to 2, concern the answer: ``presence + count * frequency`` is subtracted. repetition,
    above 0, concerns prompt and answer: positive logits are divided by it, others multiplied. Raises UsageError.
    """

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0

    def __post_init__(self) -> None:
        for name in ("presence", "frequency"):
            if not -2.0 <= getattr(self, name) <= 2.0:
                raise UsageError(f"{name}_penalty is {getattr(self, name):g}; expected -2 to 2")
        if not 0.0 < self.repetition <= 100.0:
            raise UsageError(f"repetition_penalty is {self.repetition:g}; expected more than 0 and at most 100")

    def __bool__(self) -> bool:
        """Whether they change any logit."""
        return self != NO_PENALTIES


NO_PENALTIES = Penalties()


class TextTokens:
    """The distinct tokens of a text, int32 [m], and how often each is in the answer, int32 [m]; none of images."""

    def __init__(self, prompt: Iterable[int]):
        distinct = dict.fromkeys(token for token in prompt if token >= 0)
        self._places = {token: place for place, token in enumerate(distinct)}
        self._ids = array("i", self._places)
        self._counts = array("i", [0] * len(self._places))

    def add(self, token: int) -> None:
        """Count a token of the answer."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids.append(token)
            self._counts.append(0)
        self._counts[place] += 1

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> np.ndarray:
        return np.frombuffer(self._ids, np.int32)

    @property
    def counts(self) -> np.ndarray:
        return np.frombuffer(self._counts, np.int32)


class PenaltyStep:
    """The library's penalties on the first rows of ``logits``, float32 [capacity, V], in place.

    settings: presence, frequency and repetition by name, float32 [capacity]. Arrays and calls are made for powers of
    two of rows and tokens. Raises MLCError when the library has no penalties.
    """

    def __init__(self, model: CompiledModel, logits: np.ndarray, settings: Mapping[str, np.ndarray]):
        self._model, self._logits, self._settings = model, logits, settings
        self._tokens = self._empty(SMALLEST_WIDTH)
        self._bound: dict[int, Call] = {}

    def apply(self, texts: Sequence[TextTokens]) -> None:
        """Change row i for the tokens of text i."""
        self._reserve(max(map(len, texts)))
        ids, counts = self._tokens
        size = min(1 << (len(texts) - 1).bit_length(), len(self._logits))
        ids[:size] = -1
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)], counts[row, : len(tokens)] = tokens.ids, tokens.counts
        self._model.memory.send(self._tokens)
        if size not in self._bound:
            self._bound[size] = self._bind(size)
        self._bound[size]()

    def _reserve(self, width: int) -> None:
        if width > self._tokens.shape[-1]:
            self._tokens = self._empty(1 << (width - 1).bit_length())
            self._bound = {}

    def _empty(self, width: int) -> np.ndarray:
        return self._model.memory.mirrored((2, len(self._logits), width), np.dtype(np.int32))

    def _bind(self, size: int) -> Call:
        ids, counts = self._tokens[:, :size]
        settings = {name: values[:size] for name, values in self._settings.items()}
        return self._model.bind(
            FUNCTION, {"logits": self._logits[:size], "token_ids": ids, "counts": counts, **settings}, []
        )
