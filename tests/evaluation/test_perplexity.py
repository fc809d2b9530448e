"""Perplexity: standard errors, and KL divergences by position."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from mlc_evaluation.perplexity import Windows, divergence_of, evaluate, standard_error
from mlc_toolchain.progress import Step


class Uniform:
    """A model to which all tokens are equally likely."""

    vocab_size, context_size = 8, None

    def log_probabilities(self, ids: Sequence[int], first: int) -> Iterator[np.ndarray]:
        yield np.full((len(ids) - first, self.vocab_size), -math.log(self.vocab_size))


def test_progress_begins_before_the_first_window():
    steps: list[Step] = []
    report = evaluate({"uniform": Uniform()}, Windows([[1, 2, 3, 4], [5, 6, 7, 0]], 4), progress=steps.append)
    assert [(step.done, step.total) for step in steps] == [(0, 2), (1, 2), (2, 2)]
    assert report.models[0].perplexity == pytest.approx(8)


def test_standard_errors_of_positions_and_of_windows():
    values = np.array([1.0, 1.0, 2.0, 2.0, 6.0, 6.0])
    assert standard_error(values) == pytest.approx(np.std(values, ddof=1) / math.sqrt(6))
    assert standard_error(values, 2) == pytest.approx(np.std([1, 2, 6], ddof=1) / math.sqrt(3))
    assert standard_error(values, 6) == math.inf


def test_a_divergence_of_positions():
    kl, same = np.arange(101.0), np.arange(101) % 4 == 0
    found = divergence_of(kl, same, 101)
    assert (found.mean, found.p99, found.error) == (50, 99, math.inf) and found.same_top == 26 / 101
