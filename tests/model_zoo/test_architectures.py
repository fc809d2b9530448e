"""Every architecture, from checkpoint to compiled logits, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.model_zoo.architecture_cases import CASES, IN_STEPS, Case
from tests.model_zoo.comparisons import A, of_decoder
from tests.model_zoo.compiled import build, logits, random_model, with_decoded_weights

TOLERANCE, QUANTIZED_TOLERANCE = 1e-4, 1.5e-2
NOT_COMPARED = ("batch_prefill_to_last_hidden_states", "penalize", "sample", "sample_filtered", "logprobs")
"""Functions that take a quarter of the compilation's time."""
STEPS = ("prefill", "decode", "batch_prefill", "batch_decode")


def close(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Assert equality within ``tolerance`` of the greatest logit."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_logits_equal_those_of_transformers(case: Case, tmp_path: Path) -> None:
    model = random_model(case)
    steps = case.id in IN_STEPS
    with build(case, model, tmp_path, without=NOT_COMPARED if steps else (*NOT_COMPARED, *STEPS)) as llm:
        for got, expected in of_decoder(case, model, llm, steps):
            close(got, expected, TOLERANCE)


@pytest.mark.parametrize("case", [c for c in CASES if c.quantized], ids=lambda case: case.id)
def test_4_bit_logits_are_those_of_the_decoded_weights(case: Case, tmp_path: Path) -> None:
    model = random_model(case)
    plain = logits(case, model, A)
    with build(case, model, tmp_path, "q4f16_1", without=(*NOT_COMPARED, *STEPS)) as llm:
        got = llm.logits(A)
    expected = logits(case, with_decoded_weights(model, "q4f16_1"), A)
    assert np.abs(plain - expected).max() > 4 * QUANTIZED_TOLERANCE * np.abs(expected).max()
    close(got, expected, QUANTIZED_TOLERANCE)
