"""Random modules, compiled and compared with the interpreter; see ``__main__`` for long runs."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.compiler.fuzz.differential import Trial, run_trial


@settings(max_examples=8, derandomize=True, phases=(Phase.generate,))
@given(st.integers(0, 10**6))
def test_compiled_modules_agree_with_the_interpreter(seed: int) -> None:
    run_trial(Trial.of_seed(seed))


@pytest.mark.parametrize("seed", [0, 1, 5, 13, 14])
def test_modules_for_gpus_agree_with_the_interpreter(seed: int) -> None:
    """1: a product whose weight has scales of another dtype; 13: positions of minima along an axis in the middle."""
    run_trial(Trial.of_seed(seed, "cuda:sm_80"))
