"""SmolLM2 at its real sizes, compiled by the CUDA back end, as loops over threads on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.e2e.smollm2_as_loops import answer, build

PROMPT, TOKENS = [504, 6376, 314, 4461, 28, 281, 2202], 5


def test_tokens_are_those_of_the_cpu(smollm2_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Threads run in descending order, so that kernels that rely on ascending ones give other tokens.

    The bounds of the logits are for activations in float16 on the GPU and float32 on the CPU.
    """
    folder = smollm2_folder("q4f16_1")
    expected = answer(folder, None, PROMPT, TOKENS)
    (library,) = build(folder, tmp_path, orders=(True,))
    found = answer(folder, library, PROMPT, TOKENS)
    assert found.tokens == expected.tokens
    errors = found.logits - expected.logits
    assert errors.std() < 2e-2
    assert np.abs(errors).max() < 0.2
