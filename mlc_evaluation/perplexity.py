"""Perplexity of a text, and KL divergence of a model's predictions from a reference's.

The text is split into non-overlapping windows. Each starts with an empty cache; if the tokenizer adds a BOS token, it
replaces the window's first token. The second half of each window is scored: of N tokens, those at positions
N / 2 + 1 to N - 1, as in llama.cpp's perplexity tool.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlc_errors import UsageError
from mlc_evaluation.scorers import Scorer, check_same_tokens
from mlc_runtime.tokenizer import Tokenizer
from mlc_toolchain.progress import Progress, Step, silent

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Windows:
    """The windows of a text. first: position in each window from which predictions are scored."""

    ids: list[list[int]]
    size: int

    @property
    def first(self) -> int:
        return self.size // 2

    @property
    def scored(self) -> int:
        """The number of scored tokens in all windows."""
        return len(self.ids) * (self.size - 1 - self.first)


@dataclass(frozen=True)
class Divergence:
    """KL(p || q) of a model q from a reference p, in nats. mean, error, p99: mean over the scored positions, its
    standard error, and the 99 % quantile. same_top: share of positions with the same most likely token.
    """

    mean: float
    error: float
    p99: float
    same_top: float


@dataclass(frozen=True)
class ModelScore:
    """The score of a model. perplexity: ``exp`` of the mean of -log p of the scored tokens; error: standard error."""

    name: str
    perplexity: float
    error: float
    divergence: Divergence | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """The result of ``eval``. windows: number of windows of ``window_size`` tokens; scored_tokens: in all windows.

    reference: name of the reference of the divergences.
    """

    windows: int
    window_size: int
    scored_tokens: int
    models: list[ModelScore]
    reference: ModelScore | None = None


def check_windows(size: int, limit: int | None) -> None:
    """Raise UsageError for a size below 4 and a number of windows below 1."""
    if size < 4:
        raise UsageError(f"--window: got {size}; expected at least 4")
    if limit is not None and limit < 1:
        raise UsageError(f"--windows: got {limit}; expected at least 1")


def windows_of(text: str, tokenizer: Tokenizer, size: int, limit: int | None = None) -> Windows:
    """The first ``limit`` windows of a text, by default all; an incomplete last window is dropped.

    Raises UsageError as ``check_windows``, and for a text that fills no window.
    """
    check_windows(size, limit)
    ids, start = tokenizer.encode(text), tokenizer.encode("")
    count = len(ids) // size if limit is None else min(limit, len(ids) // size)
    if count < 1:
        raise UsageError(f"the text has {len(ids)} tokens; a window has {size}", hint="give a longer text, or --window")
    found = [ids[i * size : (i + 1) * size] for i in range(count)]
    return Windows([[*start, *window[len(start) :]] for window in found], size)


def evaluate(
    models: Mapping[str, Scorer],
    windows: Windows,
    reference: tuple[str, Scorer] | None = None,
    progress: Progress = silent,
) -> EvaluationReport:
    """Score models, and their divergence from ``reference`` if it is given.

    Raises UsageError for models with different vocabularies and
    for windows longer than a model's context.
    """
    every = [*models.values(), *([reference[1]] if reference else [])]
    check_same_tokens(every)
    limits = [model.context_size for model in every if model.context_size is not None]
    if limits and windows.size > min(limits):
        raise UsageError(f"--window: got {windows.size}; the context of a model holds {min(limits)}")
    totals, of_reference = {name: _Total() for name in models}, _Total()
    progress(Step("score", 0, len(windows.ids), "windows"))
    for number, ids in enumerate(windows.ids):
        for expected, blocks in _blocks(every, ids, windows.first):
            log_p = blocks[-1] if reference else None
            for total, log_q in zip(totals.values(), blocks, strict=False):
                total.add(expected, log_q, log_p)
            if reference:
                of_reference.add(expected, blocks[-1], None)
        progress(Step("score", number + 1, len(windows.ids), "windows"))
    scores = [total.score(name) for name, total in totals.items()]
    base = of_reference.score(reference[0]) if reference else None
    return EvaluationReport(len(windows.ids), windows.size, windows.scored, scores, base)


def _blocks(models: Sequence[Scorer], ids: Sequence[int], first: int) -> Iterator[tuple[Array, tuple[Array, ...]]]:
    """Yield for each block of positions the expected next tokens and each model's log-probabilities."""
    sources = [model.log_probabilities(ids[:-1], first) for model in models]
    begin = first + 1
    for blocks in zip(*sources, strict=True):
        end = begin + len(blocks[0])
        yield np.asarray(ids[begin:end]), blocks
        begin = end


@dataclass
class _Total:
    """Accumulates a model's statistics of the scored positions."""

    nll: list[Array] = field(default_factory=list)
    kl: list[Array] = field(default_factory=list)
    same: list[Array] = field(default_factory=list)

    def add(self, expected: Array, log_q: Array, log_p: Array | None) -> None:
        """Add positions. expected: token ids [n]; log_q, log_p: log-probabilities [n, V] of model and reference."""
        self.nll.append(-log_q[np.arange(len(expected)), expected])
        if log_p is not None:
            self.kl.append((np.exp(log_p) * (log_p - log_q)).sum(-1))
            self.same.append(log_p.argmax(-1) == log_q.argmax(-1))

    def score(self, name: str) -> ModelScore:
        nll = np.concatenate(self.nll)
        perplexity = math.exp(nll.mean())
        return ModelScore(name, perplexity, perplexity * standard_error(nll), self._divergence())

    def _divergence(self) -> Divergence | None:
        if not self.kl:
            return None
        return divergence_of(np.concatenate(self.kl), np.concatenate(self.same))


def divergence_of(kl: Array, same: Array, window: int = 1) -> Divergence:
    """Summarize the divergence. kl, same: by position, [n]; window: see ``standard_error``."""
    return Divergence(
        mean=float(kl.mean()),
        error=standard_error(kl, window),
        p99=float(np.quantile(kl, 0.99)),
        same_top=float(same.mean()),
    )


def standard_error(values: Array, window: int = 1) -> float:
    """The standard error of the mean of values [n]; infinite for a single window.

    window: a divisor of n. Only values of different windows (runs of ``window`` values) are assumed to be independent.
    With 1 it is the standard deviation over sqrt(n).
    """
    means = values.reshape(-1, window).mean(1)
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.inf
