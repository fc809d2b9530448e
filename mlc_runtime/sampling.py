"""Sampling settings and stop conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeGuard, TypeVar

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.penalties import NO_PENALTIES, Penalties

OVERFLOWS = ("stop", "shift", "sinks")
MAX_TOP_LOGPROBS = 20
UNTIL_FULL = -1
"""As a maximum of tokens: until the context is full."""
Group = TypeVar("Group", "Filters", Penalties)


@dataclass(frozen=True)
class Filters:
    """Filters of a distribution, applied in the order top_k, top_p, min_p, typical_p; the defaults keep all tokens.

    top_k: keep the k most probable tokens, 0 keeps all. top_p in (0, 1]: keep the most probable tokens up to that sum.
    min_p in [0, 1]: keep tokens with at least that share of the largest probability. typical_p in (0, 1]: keep the
    tokens whose ``-log p`` is nearest to the entropy, up to that sum. Raises UsageError for values out of range.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    def __post_init__(self) -> None:
        if not (_is_integer(self.top_k) and 0 <= self.top_k < 2**31):
            raise UsageError(f"top_k is {self.top_k}; expected an integer of at least 0, which keeps all tokens")
        for name in ("top_p", "typical_p"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise UsageError(f"{name} is {getattr(self, name)}; expected more than 0 and at most 1")
        if not 0.0 <= self.min_p <= 1.0:
            raise UsageError(f"min_p is {self.min_p}; expected 0 to 1")

    @property
    def only_top_p(self) -> bool:
        """Whether no filter but top_p drops anything."""
        return self.top_k == 0 and self.min_p == 0.0 and self.typical_p == 1.0


@dataclass(frozen=True)
class Sampling:
    """Sampling settings and stop conditions. Raises UsageError for values out of range.

    ``logit_bias`` (token id -> bias, -100 to 100) is added to the logits, then ``penalties`` are applied, then logits
    are divided by ``temperature``; ``filters`` drop tokens, and one of the rest is sampled. temperature 0: the most
    likely token. max_tokens None: until the context is full. seed None: a new one each time. eos_ids and stop: tokens
    and texts that end the answer and are not part of it. top_logprobs: number of alternatives, up to 20, reported with
    each token's log probability; None reports nothing. overflow: when the context is full, ``stop`` ends
    the answer, ``shift`` drops the oldest half of the tokens, ``sinks`` does so but keeps the first 4; the remaining
    tokens are recomputed.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    filters: Filters = field(default_factory=Filters)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    eos_ids: frozenset[int] = frozenset()
    penalties: Penalties = NO_PENALTIES
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    top_logprobs: int | None = None
    overflow: str = "stop"

    def __post_init__(self) -> None:
        if self.max_tokens is not None and not (_is_integer(self.max_tokens) and self.max_tokens >= 1):
            raise UsageError(f"max_tokens is {self.max_tokens!r}; expected an integer of at least 1")
        if not 0.0 <= self.temperature <= 100.0:
            raise UsageError(f"temperature is {self.temperature}; expected 0 to 100")
        if self.seed is not None and not (_is_integer(self.seed) and self.seed >= 0):
            raise UsageError(f"seed is {self.seed!r}; expected an integer of at least 0")
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise UsageError(f"stop has {text!r}; expected a text that is not empty")
        for token, bias in self.logit_bias.items():
            _check_id("logit_bias", token)
            if not -100.0 <= bias <= 100.0:
                raise UsageError(f"logit_bias of token {token} is {bias}; expected -100 to 100")
        for token in self.eos_ids:
            _check_id("stop_ids", token)
        count = self.top_logprobs
        if count is not None and not (_is_integer(count) and 0 <= count <= MAX_TOP_LOGPROBS):
            raise UsageError(f"top_logprobs is {count}; expected an integer from 0 to {MAX_TOP_LOGPROBS}")
        if self.overflow not in OVERFLOWS:
            raise UsageError(f"overflow is {self.overflow!r}; expected one of {', '.join(OVERFLOWS)}")

    @property
    def changes_logits(self) -> bool:
        """Whether there are penalties or biases."""
        return bool(self.penalties or self.logit_bias)


def _check_id(name: str, token: object) -> None:
    if not (_is_integer(token) and token >= 0):
        raise UsageError(f"{name} has the token id {token!r}; expected an integer of at least 0")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class SamplingSettings(TypedDict, total=False):
    """The settings of ``LLM.sampling``, by name."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_ids: Sequence[int] | None
    ignore_eos: bool
    top_logprobs: int | None
    overflow: str


def given(defaults: Group, **settings: float | None) -> Group:
    """``defaults`` with the settings that are not None."""
    chosen: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return replace(defaults, **chosen)
