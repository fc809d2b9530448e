"""Every encoder, from checkpoint to compiled hidden states, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.model_zoo.architecture_cases import CONTEXT
from tests.model_zoo.comparisons import TEXTS, hidden_states, of_encoder
from tests.model_zoo.compiled import build, random_model, with_decoded_weights
from tests.model_zoo.encoder_cases import CASES, EncoderCase
from tests.model_zoo.test_architectures import QUANTIZED_TOLERANCE, TOLERANCE, close


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_hidden_states_equal_those_of_transformers(case: EncoderCase, tmp_path: Path) -> None:
    model = random_model(case)
    with build(case, model, tmp_path, model_type=case.model_type, chunk=CONTEXT) as llm:
        for got, expected in of_encoder(model, llm):
            close(got, expected, TOLERANCE)


@pytest.mark.parametrize("case", [c for c in CASES if c.quantized], ids=lambda case: case.id)
def test_4_bit_hidden_states_are_those_of_the_decoded_weights(case: EncoderCase, tmp_path: Path) -> None:
    model = random_model(case)
    plain = hidden_states(model, TEXTS[0])
    with build(case, model, tmp_path, "q4f16_1", chunk=CONTEXT) as llm:
        got = llm.hidden_states(TEXTS[0])
    expected = hidden_states(with_decoded_weights(model, "q4f16_1"), TEXTS[0])
    assert np.abs(plain - expected).max() > 4 * QUANTIZED_TOLERANCE * np.abs(expected).max()
    close(got, expected, QUANTIZED_TOLERANCE)
