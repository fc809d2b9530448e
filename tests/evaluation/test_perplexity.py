"""Perplexity: standard errors, and KL divergences by position."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlc_evaluation.perplexity import divergence_of, standard_error


def test_standard_errors_of_positions_and_of_windows():
    values = np.array([1.0, 1.0, 2.0, 2.0, 6.0, 6.0])
    assert standard_error(values) == pytest.approx(np.std(values, ddof=1) / math.sqrt(6))
    assert standard_error(values, 2) == pytest.approx(np.std([1, 2, 6], ddof=1) / math.sqrt(3))
    assert standard_error(values, 6) == math.inf


def test_a_divergence_of_positions():
    kl, same = np.arange(101.0), np.arange(101) % 4 == 0
    found = divergence_of(kl, same, 101)
    assert (found.mean, found.p99, found.error) == (50, 99, math.inf) and found.same_top == 26 / 101
