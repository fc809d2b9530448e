"""Random modules through the whole compiler, with the interpreter as the judge; see ``__main__`` for long runs."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.compiler.fuzz.differential import Trial, run_trial


@settings(max_examples=12, derandomize=True, phases=(Phase.generate,))
@given(st.integers(0, 10**6))
def test_compiled_modules_do_what_they_mean(seed: int) -> None:
    run_trial(Trial.of_seed(seed))
