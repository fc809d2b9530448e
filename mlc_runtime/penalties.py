"""Penalties for tokens that already occur in a text, and logit biases."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlc_errors import UsageError

if TYPE_CHECKING:
    from mlc_runtime.model import Call, CompiledModel

FUNCTION = "penalize"
SMALLEST_WIDTH = 256


@dataclass(frozen=True)
class Penalties:
    """Penalties on the logits of tokens that already occur in a text.

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
        """Whether the penalties change any logit."""
        return self != NO_PENALTIES


NO_PENALTIES = Penalties()


class TextTokens:
    """The m distinct tokens of a text and those with a logit bias, without image tokens.

    counts: how often each occurs in the answer, -1 for tokens that are not in the text. bias: added to the logits.
    """

    def __init__(self, prompt: Iterable[int], logit_bias: Mapping[int, float]):
        counts = dict.fromkeys(logit_bias, -1) | dict.fromkeys((token for token in prompt if token >= 0), 0)
        self._places = {token: place for place, token in enumerate(counts)}
        self._ids = array("i", counts)
        self._counts = array("i", counts.values())
        self._bias = array("f", [logit_bias.get(token, 0.0) for token in counts])

    def add(self, token: int) -> None:
        """Count a token of the answer."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids.append(token)
            self._counts.append(0)
            self._bias.append(0.0)
        self._counts[place] = max(self._counts[place], 0) + 1

    def followed_by(self, tokens: Iterable[int]) -> TextTokens:
        """A copy to which tokens of the answer are added."""
        copy = TextTokens((), {})
        copy._places = dict(self._places)
        copy._ids, copy._counts, copy._bias = self._ids[:], self._counts[:], self._bias[:]
        for token in tokens:
            copy.add(token)
        return copy

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> np.ndarray:
        """int32 [m]"""
        return np.frombuffer(self._ids, np.int32)

    @property
    def counts(self) -> np.ndarray:
        """int32 [m]"""
        return np.frombuffer(self._counts, np.int32)

    @property
    def bias(self) -> np.ndarray:
        """float32 [m]"""
        return np.frombuffer(self._bias, np.float32)


class PenaltyStep:
    """Applies logit biases and penalties to the first rows of ``logits``, float32 [capacity, V], in place.

    settings: presence, frequency and repetition by name, float32 [capacity]. Arrays and bound calls exist for powers of
    two of rows and tokens. Raises MLCError when the library has no function for it.
    """

    def __init__(self, model: CompiledModel, logits: np.ndarray, settings: Mapping[str, np.ndarray]):
        self._model, self._logits, self._settings = model, logits, settings
        self._tokens = self._empty(SMALLEST_WIDTH)
        self._bound: dict[int, Call] = {}

    def apply(self, texts: Sequence[TextTokens]) -> None:
        """Change the logits of row i for the tokens of text i."""
        self._reserve(max(map(len, texts)))
        ids, counts, bias = self._arrays()
        size = min(1 << (len(texts) - 1).bit_length(), len(self._logits))
        ids[:size] = -1
        for row, tokens in enumerate(texts):
            at = row, slice(len(tokens))
            ids[at], counts[at], bias[at] = tokens.ids, tokens.counts, tokens.bias
        self._model.memory.send(self._tokens)
        if size not in self._bound:
            self._bound[size] = self._bind(size)
        self._bound[size]()

    def _reserve(self, width: int) -> None:
        if width > self._tokens.shape[-1]:
            self._tokens = self._empty(1 << (width - 1).bit_length())
            self._bound = {}

    def _empty(self, width: int) -> np.ndarray:
        return self._model.memory.mirrored((3, len(self._logits), width), np.dtype(np.int32))

    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, counts, bias = self._tokens
        return ids, counts, bias.view(np.float32)

    def _bind(self, size: int) -> Call:
        names = ("token_ids", "counts", "bias")
        tokens = {name: values[:size] for name, values in zip(names, self._arrays(), strict=True)}
        settings = {name: values[:size] for name, values in self._settings.items()}
        return self._model.bind(FUNCTION, {"logits": self._logits[:size], **tokens, **settings}, [])
