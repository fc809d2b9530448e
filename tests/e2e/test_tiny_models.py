"""Random models of odd sizes, from checkpoint to compiled logits, against transformers in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from mlc_errors import ResourceError, UsageError
from mlc_runtime import LLM
from mlc_runtime.decoder import Decoder, DecodeStep
from tests.e2e import oracle
from tests.e2e.checkpoints import CONTEXT, VOCAB, random_model

TOLERANCE = 3e-5
NAMES = ("llama-bias-tied", "llama-odd-llama3", "mistral-window", "mixtral", "gpt2-tied")
PREFILL_LENGTHS = (1, 2, 3, 5, 11, 12, 13, 15, 16, 17, 24, 25, 31, 48, 64)
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, VOCAB, CONTEXT).tolist()
OTHER_IDS = RNG.integers(0, VOCAB, CONTEXT).tolist()


@dataclass(frozen=True)
class Case:
    """A compiled model, and transformers' logits after each of IDS and OTHER_IDS, float32 [CONTEXT, V]."""

    name: str
    folder: Path
    llm: LLM

    @cached_property
    def hf(self):
        return random_model(self.name)

    @cached_property
    def expected(self) -> np.ndarray:
        return oracle.logits(self.hf, IDS)

    @cached_property
    def other(self) -> np.ndarray:
        return oracle.logits(self.hf, OTHER_IDS)


@pytest.fixture(scope="session", params=NAMES)
def case(request, tiny_folder: Callable[[str, str], Path], opened: Callable[[Path, int], LLM]) -> Case:
    folder = tiny_folder(request.param, "q0f32")
    return Case(request.param, folder, opened(folder, 2))


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE)


def test_logits_of_every_position(case: Case):
    assert case.expected.std() > 0.5  # far above the tolerance
    assert_close(case.llm.logits(IDS), case.expected)


def test_prefill_of_any_length(case: Case):
    session = case.llm.new_session()
    for length in PREFILL_LENGTHS:
        session.reset()
        assert_close(session.prefill(IDS[:length]), case.expected[length - 1])


def test_a_prompt_in_pieces_of_any_length(case: Case):
    session, end = case.llm.new_session(), 0
    for length in (1, 14, 1, 1, 30, 2, 13):
        end += length
        assert_close(session.prefill(IDS[end - length : end]), case.expected[end - 1])


@pytest.mark.parametrize("prompt", [0, 1, 14, 15, 16, 17, 25, 64])
def test_decode_continues_a_prefill(case: Case, prompt: int):
    session = case.llm.new_session()
    if prompt:
        session.prefill(IDS[:prompt])
    for position in range(prompt, prompt + 20):
        assert_close(session.decode_step(IDS[position]), case.expected[position])


def test_greedy_answers_are_the_most_likely_tokens(case: Case):
    prompts = [IDS[:13], OTHER_IDS[:2], IDS[:33]]
    for prompt, result in zip(prompts, case.llm.generate(prompts, max_tokens=30, temperature=0)):
        assert result.token_ids == case.llm.generate(prompt, max_tokens=30, temperature=0).token_ids
        likely = oracle.logits(case.hf, [*prompt, *result.token_ids]).argmax(-1)
        assert tuple(likely[len(prompt) - 1 : -1]) == result.token_ids


def test_sequences_of_a_batch(case: Case):
    """Prefilled in pieces that share calls, then decoded together, in pages that contained NaN before."""
    ids = [IDS, OTHER_IDS, IDS, OTHER_IDS, IDS]
    expected = [case.expected, case.other, case.expected, case.other, case.expected]
    with LLM(case.folder, num_threads=2) as llm:
        model, pool = llm.model, llm.model.pool
        pool.inputs["k_pages"][:, :60] = pool.inputs["v_pages"][:, :60] = np.nan
        rows = [pool.add() for _ in ids]
        for counts in ({0: 9, 1: 1, 2: 3, 3: 11}, {3: 4, 0: 38}, {4: 2, 3: 1, 0: 15}, {2: 1}):
            begins = {s: pool.lengths[rows[s]] for s in counts}
            prompts = [(rows[s], ids[s][begins[s] : begins[s] + n]) for s, n in counts.items()]
            got = np.empty((len(prompts), VOCAB), np.float32)
            model.prefill(prompts, got)
            assert_close(got, [expected[s][begins[s] + n - 1] for s, n in counts.items()])
        for order in ([3, 0, 4, 1, 2], [4, 1, 2], [1]):  # functions of five rows, of four with one to spare, of one
            check_decode(model, model.batch, [(rows[s], ids[s], expected[s]) for s in order], 9)


def check_decode(
    model: Decoder, step: DecodeStep, sequences: list[tuple[int, list[int], np.ndarray]], count: int
) -> None:
    """Check ``count`` decode steps. sequences: (row of the pool, tokens, expected logits after each token)."""
    n = len(sequences)
    step.assign([row for row, _, _ in sequences])
    for _ in range(count):
        places = [model.pool.extend(row, 1) for row, _, _ in sequences]
        step.token_pos[:n], step.input_ids[:n] = places, [ids[at] for (_, ids, _), at in zip(sequences, places)]
        step.forward()
        assert_close(step.logits[:n], [expected[at] for (_, _, expected), at in zip(sequences, places)])


def test_verifying_drafts(case: Case):
    model = case.llm.model
    row = model.pool.add()
    model.prefill([(row, OTHER_IDS[:6])], np.empty((1, VOCAB), np.float32))
    assert_close(model.verify(row, OTHER_IDS[6:40]), case.other[6:40])
    model.pool.remove(row)


def test_interleaved_streams(case: Case):
    prompts = [IDS[:13], [*IDS[:9], 4, 5], OTHER_IDS[:33]]
    alone = [case.llm.generate(p, max_tokens=20, temperature=0).token_ids for p in prompts]
    streams = [case.llm.stream(p, case.llm.sampling(max_tokens=20, temperature=0)) for p in prompts]
    pieces = [iter(stream) for stream in streams]
    for _ in range(21):
        for piece in pieces:
            next(piece, None)
    assert [stream.result.token_ids for stream in streams] == alone


def test_one_thread_or_several_give_the_same_logits(case: Case):
    with LLM(case.folder, num_threads=1) as single, LLM(case.folder, num_threads=3) as three:
        expected = case.llm.logits(IDS[:40])
        for llm in (single, three):
            assert np.array_equal(llm.logits(IDS[:40]), expected)
            session = llm.new_session()
            session.prefill(IDS[:39])
            assert_close(session.decode_step(IDS[39]), case.expected[39])


def test_the_context_can_be_filled_to_the_last_token(case: Case):
    session = case.llm.new_session()
    session.prefill(IDS[:-1])
    assert_close(session.decode_step(IDS[-1]), case.expected[-1])
    with pytest.raises(ResourceError, match=f"the context is full: {CONTEXT + 1} tokens; expected at most {CONTEXT}"):
        session.decode_step(0)
    with pytest.raises(ResourceError, match="the context is full"):
        session.prefill([0])
    session.truncate(CONTEXT - 2)
    assert_close(session.prefill(IDS[-2:]), case.expected[-1])


def test_an_answer_ends_where_the_context_does(case: Case):
    result = case.llm.generate(IDS[:-3], max_tokens=10, temperature=0)
    assert (result.finish_reason, result.note) == ("length", f"the context is full: {CONTEXT} tokens")
    assert len(result.token_ids) == 4
    with pytest.raises(UsageError, match=f"the prompt has {CONTEXT + 1} tokens; the context holds {CONTEXT}"):
        case.llm.generate([*IDS, 0], max_tokens=1)
    with pytest.raises(ResourceError, match="the context is full"):
        case.llm.logits([*IDS, 0])
