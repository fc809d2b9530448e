"""Encoder-decoders, from checkpoint to compiled logits and answers, against transformers in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedModel

from mlc_errors import UsageError
from mlc_runtime import LLM
from tests.model_zoo.architecture_cases import CONTEXT
from tests.model_zoo.comparisons import SOURCE, TEXTS, of_encoder_decoder, target_logits
from tests.model_zoo.compiled import build, random_model
from tests.model_zoo.encoder_cases import ENCODER_DECODERS, EncoderDecoderCase
from tests.model_zoo.test_architectures import TOLERANCE, close

SOURCES = (SOURCE, *TEXTS[2:])


@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.id)
def test_logits_and_answers_equal_those_of_transformers(case: EncoderDecoderCase, tmp_path: Path) -> None:
    model = random_model(case)
    with build(case, model, tmp_path, chunk=CONTEXT) as llm:
        for got, expected in of_encoder_decoder(model, llm):
            close(got, expected, TOLERANCE)
        check_answers(llm, model)
        check_refusals(llm)


def check_answers(llm: LLM, model: PreTrainedModel) -> None:
    """Of single prompts, the second with the session of the first, and of a batch."""
    prompts = [[*source, 0] for source in SOURCES]
    answers = [llm.generate(prompt, max_tokens=9, temperature=0).token_ids for prompt in prompts]
    for source, answer in zip(SOURCES, answers, strict=True):
        likely = target_logits(model, source, [0, *answer]).argmax(-1)
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
