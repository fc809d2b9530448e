"""SmolLM2 at its real sizes, compiled by the CUDA back end, as loops over threads on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.e2e.smollm2_as_loops import answer, build

PROMPT, TOKENS = [504, 6376, 314, 4461, 28, 281, 2202], 5


def test_tokens_are_those_of_the_cpu_in_both_orders_of_threads(
    smollm2_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """The bounds of the logits are for activations in float16 on the GPU and float32 on the CPU."""
    folder = smollm2_folder("q4f16_1")
    expected = answer(folder, None, PROMPT, TOKENS)
    up, down = (answer(folder, library, PROMPT, TOKENS) for library in build(folder, tmp_path))
    assert np.array_equal(up.logits.view(np.uint32), down.logits.view(np.uint32))
    assert up.tokens == expected.tokens
    errors = up.logits - expected.logits
    assert errors.std() < 2e-2
    assert np.abs(errors).max() < 0.2
