"""Encoder-decoders, from checkpoint to compiled logits and answers, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from mlc_errors import UsageError
from mlc_runtime import LLM
from tests.model_zoo.architecture_cases import CONTEXT, VOCAB
from tests.model_zoo.compiled import build, random_model
from tests.model_zoo.encoder_cases import ENCODER_DECODERS, EncoderDecoderCase
from tests.model_zoo.test_architectures import TOLERANCE, close

RNG = np.random.default_rng(3)
SOURCES = [RNG.integers(3, VOCAB, n).tolist() for n in (29, 7, 40)]
TARGET = [0, *RNG.integers(3, VOCAB, 12).tolist()]


def logits(model: PreTrainedModel, source: list[int], target: list[int]) -> np.ndarray:
    """float32 [len(target), V]"""
    with torch.no_grad():
        return model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0].numpy()


@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.id)
def test_logits_and_answers_equal_those_of_transformers(case: EncoderDecoderCase, tmp_path: Path) -> None:
    model = random_model(case)
    expected = logits(model, SOURCES[0], TARGET)
    assert expected.std() > 0.1
    assert np.abs(expected - logits(model, SOURCES[1], TARGET)).max() > 0.3  # the source matters
    with build(case, model, tmp_path, chunk=CONTEXT) as llm:
        session = llm.new_session()
        close(session.prefill([*SOURCES[0], TARGET[0]]), expected[0], TOLERANCE)
        for i in range(1, 6):
            close(session.decode_step(TARGET[i]), expected[i], TOLERANCE)
        close(session.prefill(TARGET[6:]), expected[-1], TOLERANCE)
        check_answers(llm, model)
        check_refusals(llm)


def check_answers(llm: LLM, model: PreTrainedModel) -> None:
    """Of single prompts, the second with the session of the first, and of a batch."""
    prompts = [[*source, 0] for source in SOURCES]
    answers = [llm.generate(prompt, max_tokens=9, temperature=0).token_ids for prompt in prompts]
    for source, answer in zip(SOURCES, answers, strict=True):
        likely = logits(model, source, [0, *answer]).argmax(-1)
        assert tuple(likely[: len(answer)]) == answer
    assert [r.token_ids for r in llm.generate(prompts, max_tokens=9, temperature=0)] == answers
    text = llm.generate("some text", max_tokens=3, temperature=0)
    assert text.prompt_tokens == len(llm.tokenizer.encode("some text")) + 1


def check_refusals(llm: LLM) -> None:
    with pytest.raises(UsageError, match="the prompt has no source; t5 models take one"):
        llm.generate([0])
    session = llm.new_session()
    session.prefill([5, 6, 7, 0])
    with pytest.raises(UsageError, match="cannot be forked"):
        session.fork()
    with pytest.raises(UsageError, match="cannot cut the sequence of 4 tokens to 2"):
        session.truncate(2)
