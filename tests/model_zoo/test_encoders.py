"""Every encoder, from checkpoint to compiled hidden states, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from tests.model_zoo.architecture_cases import CONTEXT, VOCAB
from tests.model_zoo.compiled import build, random_model, with_decoded_weights
from tests.model_zoo.encoder_cases import CASES, EncoderCase
from tests.model_zoo.test_architectures import QUANTIZED_TOLERANCE, TOLERANCE, close

RNG = np.random.default_rng(3)
TEXTS = [RNG.integers(3, VOCAB, n).tolist() for n in (29, 1, 17, 40)]
torch.set_num_threads(1)


def hidden_states(model: PreTrainedModel, ids: list[int], token_types: list[int] | None = None) -> np.ndarray:
    """float32 [len(ids), D], of a text alone, which needs no padding."""
    more = {} if token_types is None else {"token_type_ids": torch.tensor([token_types])}
    with torch.no_grad():
        return model(torch.tensor([ids]), **more).last_hidden_state[0].numpy()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_hidden_states_equal_those_of_transformers(case: EncoderCase, tmp_path: Path) -> None:
    """Texts of different lengths that share calls."""
    model = random_model(case)
    expected = [hidden_states(model, ids) for ids in TEXTS]
    assert np.abs(expected[0][5:] - expected[0][4:-1]).max() > 0.3  # far above the tolerance
    with build(case, model, tmp_path, model_type=case.model_type, chunk=CONTEXT) as llm:
        for got, wanted in zip(llm.compiled.hidden_states(TEXTS), expected, strict=True):
            close(got, wanted, TOLERANCE)
        close(llm.hidden_states(TEXTS[0]), expected[0], TOLERANCE)


@pytest.mark.parametrize("case", [c for c in CASES if c.quantized], ids=lambda case: case.id)
def test_4_bit_hidden_states_are_those_of_the_decoded_weights(case: EncoderCase, tmp_path: Path) -> None:
    model = random_model(case)
    plain = hidden_states(model, TEXTS[0])
    with build(case, model, tmp_path, "q4f16_1", chunk=CONTEXT) as llm:
        got = llm.hidden_states(TEXTS[0])
    expected = hidden_states(with_decoded_weights(model, "q4f16_1"), TEXTS[0])
    assert np.abs(plain - expected).max() > 4 * QUANTIZED_TOLERANCE * np.abs(expected).max()
    close(got, expected, QUANTIZED_TOLERANCE)
