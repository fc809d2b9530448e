"""SmolLM2-135M-Instruct from its GGUF to logits and text, against transformers with the weights of the gguf package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from transformers import PreTrainedModel

from mlc_runtime import LLM
from mlc_runtime.decoder import DecodeStep
from tests.e2e import oracle
from tests.e2e.building import SharedFolders, run_command

PROSE = Path(__file__).with_name("prose.txt")
PREFILL, DECODE = 300, 64
QUESTION = [{"role": "user", "content": "Explain why the sky is blue, in detail."}]


@pytest.fixture(scope="module")
def float_model(smollm2_gguf: Path) -> PreTrainedModel:
    return oracle.from_gguf(smollm2_gguf)


@pytest.fixture(scope="module")
def float_llm(smollm2_folder: Callable[[str], Path], opened: Callable[[Path, int], LLM]) -> LLM:
    return opened(smollm2_folder("q0f32"), 1)


@pytest.fixture(scope="module")
def quantized_model(smollm2_folder: Callable[[str], Path], float_model: PreTrainedModel) -> PreTrainedModel:
    return oracle.from_folder(float_model.config, smollm2_folder("q4f16_1"))


@pytest.fixture(scope="module")
def quantized_llm(smollm2_folder: Callable[[str], Path], opened: Callable[[Path, int], LLM]) -> LLM:
    return opened(smollm2_folder("q4f16_1"), 1)


def compiled_logits(llm: LLM) -> tuple[list[int], np.ndarray]:
    """Tokens of prose and the logits after each: a prompt of PREFILL tokens, then DECODE single steps."""
    ids = llm.encode(PROSE.read_text())[: PREFILL + DECODE]
    assert len(ids) == PREFILL + DECODE
    session = llm.new_session()
    last = session.prefill(ids[:PREFILL]).copy()
    prompt = llm.logits(ids[:PREFILL])
    np.testing.assert_allclose(last, prompt[-1], rtol=0, atol=1e-3)
    return ids, np.stack([*prompt, *(session.decode_step(i).copy() for i in ids[PREFILL:])])


def test_float_logits(float_llm: LLM, float_model: PreTrainedModel):
    ids, got = compiled_logits(float_llm)
    np.testing.assert_allclose(got, oracle.logits(float_model, ids), rtol=0, atol=1e-3)


def test_quantized_logits(quantized_llm: LLM, quantized_model: PreTrainedModel):
    """With keys and values in float16, and activations of 16 bits.

    Rounding depends on the order of sums, and differences grow in later layers: transformers' own logits differ by
    2.6e-3 (standard deviation) between a float16 and a float32 cache.
    """
    ids, got = compiled_logits(quantized_llm)
    errors = got - oracle.logits(quantized_model, ids, half_cache=True)
    assert errors.std() < 3e-3
    assert np.abs(errors).max() < 3e-2


def test_quantized_logits_with_a_cache_of_codes(
    quantized_llm: LLM, smollm2_folder: Callable[[str], Path], shared: SharedFolders
):
    """With keys and values in int8 with scales, beside float16: docs/performance.md has the figures."""
    folder = smollm2_folder("q4f16_1")
    flags = ("--device", "cpu", "--opt", "act=16", "--kv-cache-dtype", "int8")
    library = shared.get("smollm2-int8", lambda to: run_command("compile", folder, *flags, "-o", to / "lib.so"))
    _, expected = compiled_logits(quantized_llm)
    with LLM(folder, library / "lib.so", 1) as llm:
        _, got = compiled_logits(llm)
    assert (got - expected).std() < 0.2
    kl = divergence(expected, got)
    assert kl.mean() < 2e-3 and kl.max() < 5e-2


def test_divergence_of_the_default(quantized_llm: LLM, smollm2_folder: Callable[[str], Path], shared: SharedFolders):
    """Activations of 8 bits: docs/performance.md has the mean over more text."""
    folder = smollm2_folder("q4f16_1")
    library = shared.get(
        "smollm2-O3", lambda to: run_command("compile", folder, "--device", "cpu", "-o", to / "lib.so")
    )
    _, expected = compiled_logits(quantized_llm)
    with LLM(folder, library / "lib.so", 1) as llm:
        _, got = compiled_logits(llm)
        answer = llm.chat(QUESTION, max_tokens=12, temperature=0)
    kl = divergence(expected, got)
    assert 1e-4 < kl.mean() < 5e-3 and kl.max() < 0.1
    assert "sky" in answer.text


def divergence(expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """KL(expected || got) of each row of logits."""
    exact, other = log_softmax(expected), log_softmax(got)
    return (np.exp(exact) * (exact - other)).sum(-1)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_two_threads_give_equal_logits(quantized_llm: LLM, opened: Callable[[Path, int], LLM]):
    threaded_llm = opened(quantized_llm.folder, 2)
    ids = quantized_llm.encode(PROSE.read_text())[:40]
    assert np.array_equal(quantized_llm.logits(ids), threaded_llm.logits(ids))
    sessions = quantized_llm.new_session(), threaded_llm.new_session()
    for token in ids[:4]:
        one, two = (session.decode_step(token) for session in sessions)
        assert np.array_equal(one, two)


@pytest.mark.parametrize("kind", ["float", "quantized"])
def test_greedy_text(kind: str, request: pytest.FixtureRequest):
    """Each token is the most likely one after those before it."""
    llm, model = request.getfixturevalue(f"{kind}_llm"), request.getfixturevalue(f"{kind}_model")
    result = llm.chat(QUESTION, max_tokens=100, temperature=0)
    prompt = llm.chat_prompt(QUESTION)
    likely = oracle.logits(model, [*prompt, *result.token_ids]).argmax(-1)[len(prompt) - 1 : -1]
    assert len(result.token_ids) == 100 and result.token_ids == tuple(likely)
    tokenizer = tokenizers.Tokenizer.from_file(str(llm.folder / "tokenizer.json"))
    assert result.text == tokenizer.decode(result.token_ids)


def test_tokens_side_by_side_have_the_bits_of_single_ones(quantized_llm: LLM):
    ids = quantized_llm.encode(PROSE.read_text())[:46]
    alone, together = quantized_llm.new_session(), quantized_llm.new_session()
    for session in (alone, together):
        session.extend(ids[:40])
    step = DecodeStep(quantized_llm.model, 6)
    step.extend(together.row, quantized_llm.model.pool.extend(together.row, 6), ids[40:])
    assert np.array_equal(step.logits, [alone.decode_step(token).copy() for token in ids[40:]])


@pytest.mark.parametrize("kind", ["float", "quantized"])
@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 0.7, "top_k": 40, "seed": 1}], ids=str)
def test_guesses_do_not_change_the_text(kind: str, settings: dict[str, float], request: pytest.FixtureRequest):
    llm: LLM = request.getfixturevalue(f"{kind}_llm")
    prompt = "one two three four five six, " * 6
    plain = llm.generate(prompt, max_tokens=40, **settings)
    guessed = llm.generate(prompt, max_tokens=40, num_draft=4, **settings)
    assert guessed.token_ids == plain.token_ids and guessed.accepted > 2


def test_prompts_in_pieces_and_in_batches_have_the_same_bits(quantized_llm: LLM):
    """Whole, or as the rest of a cached beginning; alone, or beside other prompts."""
    ids = quantized_llm.encode(PROSE.read_text())[:60]
    whole = quantized_llm.new_session().prefill(ids).copy()
    for cut in (1, 17, 59):
        session = quantized_llm.new_session()
        session.extend(ids[:cut])
        assert np.array_equal(session.prefill(ids[cut:]), whole)
    prompts = [ids, ids[:9], ids[:33]]
    batch = quantized_llm.generate(prompts, max_tokens=12, temperature=0)
    alone = [quantized_llm.generate(prompt, max_tokens=12, temperature=0) for prompt in prompts]
    assert [r.token_ids for r in batch] == [r.token_ids for r in alone]


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 5}], ids=str)
def test_the_same_tokens_however_they_are_computed(
    settings: dict[str, float],
    quantized_llm: LLM,
    smollm2_folder: Callable[[str], Path],
    opened: Callable[[Path, int], LLM],
):
    ids = quantized_llm.encode(PROSE.read_text())[:50]

    def tokens(llm: LLM, **options: int) -> tuple[int, ...]:
        return llm.generate(ids, max_tokens=24, **settings, **options).token_ids

    quantized_llm.generate(ids[20:], max_tokens=1)
    cold = tokens(quantized_llm)
    assert len(cold) == 24 and tokens(quantized_llm) == cold  # with all of the prompt cached
    quantized_llm.generate(ids[:17], max_tokens=3, temperature=0)
    assert tokens(quantized_llm) == cold  # with a part of it cached
    assert tokens(quantized_llm, num_draft=4) == cold
    batch = quantized_llm.generate([ids, ids[9:]], max_tokens=24, **settings)
    assert batch[0].token_ids == cold
    assert tokens(opened(smollm2_folder("q4f16_1"), 2)) == cold
