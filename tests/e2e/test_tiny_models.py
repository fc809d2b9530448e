"""Random models of awkward sizes, from checkpoint to compiled logits, against transformers in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from mlc_errors import ResourceError, UsageError
from mlc_runtime import LLM
from mlc_runtime.kv_cache import PagedKVCache
from mlc_runtime.model import DecodeStep, cache_inputs
from tests.e2e import oracle
from tests.e2e.checkpoints import CONTEXT, VOCAB, random_model

TOLERANCE = 3e-5
NAMES = ("llama-bias-tied", "llama-odd-llama3", "mistral-window", "gpt2-tied")
PREFILL_LENGTHS = (1, 2, 3, 5, 11, 12, 13, 15, 16, 17, 24, 25, 31, 48, 64)
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, VOCAB, CONTEXT).tolist()
OTHER_IDS = RNG.integers(0, VOCAB, CONTEXT).tolist()


@dataclass(frozen=True)
class Case:
    """A compiled model and transformers' logits after each of IDS and OTHER_IDS, float32 [CONTEXT, V]."""

    name: str
    folder: Path
    llm: LLM

    @cached_property
    def hf(self):
        return random_model(self.name)

    @cached_property
    def wanted(self) -> np.ndarray:
        return oracle.logits(self.hf, IDS)

    @cached_property
    def other(self) -> np.ndarray:
        return oracle.logits(self.hf, OTHER_IDS)


@pytest.fixture(scope="session", params=NAMES)
def case(request, tiny_folder: Callable[[str, str], Path], opened: Callable[[Path, int], LLM]) -> Case:
    folder = tiny_folder(request.param, "q0f32")
    return Case(request.param, folder, opened(folder, 2))


def assert_close(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE)


def test_logits_of_every_position(case: Case):
    assert case.wanted.std() > 0.5  # the tolerance means something
    assert_close(case.llm.logits(IDS), case.wanted)


def test_prefill_of_any_length(case: Case):
    session = case.llm.new_session()
    for length in PREFILL_LENGTHS:
        session.reset()
        assert_close(session.prefill(IDS[:length]), case.wanted[length - 1])


def test_a_prompt_in_pieces_of_any_length(case: Case):
    session, end = case.llm.new_session(), 0
    for length in (1, 14, 1, 1, 30, 2, 13):
        end += length
        assert_close(session.prefill(IDS[end - length : end]), case.wanted[end - 1])


@pytest.mark.parametrize("prompt", [0, 1, 14, 15, 16, 17, 25, 64])
def test_decode_continues_a_prefill(case: Case, prompt: int):
    session = case.llm.new_session()
    if prompt:
        session.prefill(IDS[:prompt])
    for position in range(prompt, prompt + 20):
        assert_close(session.decode_step(IDS[position]), case.wanted[position])


def test_greedy_answers_are_the_most_likely_tokens(case: Case):
    prompts = [IDS[:13], OTHER_IDS[:2], IDS[:33]]
    for prompt, result in zip(prompts, case.llm.generate(prompts, max_tokens=30, temperature=0)):
        assert result.token_ids == case.llm.generate(prompt, max_tokens=30, temperature=0).token_ids
        likely = oracle.logits(case.hf, [*prompt, *result.token_ids]).argmax(-1)
        assert tuple(likely[len(prompt) - 1 : -1]) == result.token_ids


def test_sequences_of_a_batch(case: Case):
    """Prefilled in pieces that share calls, then decoded together, in pages that held something else before."""
    model, wanted = case.llm.model, [case.wanted, case.other, case.wanted, case.other, case.wanted]
    ids = [IDS, OTHER_IDS, IDS, OTHER_IDS, IDS]
    cache = model.new_cache(len(ids))
    cache.k_pages[:] = cache.v_pages[:] = np.nan
    for counts in ({0: 9, 1: 1, 2: 3, 3: 11}, {3: 4, 0: 8}, {4: 2, 3: 1, 0: 15}, {2: 1}):
        begins = {s: cache.lengths[s] for s in counts}
        got = batch_prefill(case.llm, cache, {s: ids[s][begins[s] : begins[s] + n] for s, n in counts.items()})
        assert_close(got, [wanted[s][begins[s] + n - 1] for s, n in counts.items()])
    order = [3, 0, 4, 1, 2]
    step = DecodeStep(model, cache, order)
    for _ in range(20):
        places = [cache.extend(s, 1) for s in order]
        step.token_pos[:], step.input_ids[:] = places, [ids[s][at] for s, at in zip(order, places)]
        step.forward()
        assert_close(step.logits, [wanted[s][at] for s, at in zip(order, places)])


def batch_prefill(llm: LLM, cache: PagedKVCache, pieces: dict[int, list[int]]) -> np.ndarray:
    """One call for pieces of several sequences: the logits after the last token of each."""
    rows = np.empty((len(pieces), VOCAB), np.float32)
    lasts = np.cumsum([len(piece) for piece in pieces.values()], dtype=np.int32) - 1
    inputs = appended(llm, cache, pieces)
    llm.model.bind("batch_prefill", {**inputs, "logit_positions": lasts}, [rows[None]])()
    return rows


def appended(llm: LLM, cache: PagedKVCache, pieces: dict[int, list[int]]) -> dict[str, np.ndarray]:
    """Inputs of a call that appends tokens to several sequences."""
    begins = {s: cache.extend(s, len(piece)) for s, piece in pieces.items()}
    ids = np.concatenate(list(pieces.values())).astype(np.int32)
    sequences = np.repeat(np.array(list(pieces), np.int32), [len(piece) for piece in pieces.values()])
    places = np.concatenate([np.arange(begins[s], begins[s] + len(p), dtype=np.int32) for s, p in pieces.items()])
    embedding = llm.model.embedding_buffer(len(ids))
    llm.model.bind("embed", {"input_ids": ids}, [embedding])()
    return {"input_embed": embedding[None], **cache_inputs(cache, sequences, places)}


def test_verifying_drafts_of_several_sequences(case: Case):
    cache, logits = case.llm.model.new_cache(2), np.empty((1, 12, VOCAB), np.float32)
    batch_prefill(case.llm, cache, {0: IDS[:14], 1: OTHER_IDS[:6]})
    inputs = appended(case.llm, cache, {1: OTHER_IDS[6:13], 0: IDS[14:19]})
    case.llm.model.bind("batch_verify", inputs, [logits])()
    assert_close(logits[0], [*case.other[6:13], *case.wanted[14:19]])


def test_one_thread_or_several_give_the_same_logits(case: Case):
    with LLM(case.folder, num_threads=1) as single, LLM(case.folder, num_threads=3) as three:
        wanted = case.llm.logits(IDS[:40])
        for llm in (single, three):
            assert np.array_equal(llm.logits(IDS[:40]), wanted)
            session = llm.new_session()
            session.prefill(IDS[:39])
            assert_close(session.decode_step(IDS[39]), case.wanted[39])


def test_the_context_can_be_filled_to_the_last_token(case: Case):
    session = case.llm.new_session()
    session.prefill(IDS[:-1])
    assert_close(session.decode_step(IDS[-1]), case.wanted[-1])
    with pytest.raises(ResourceError, match=f"the context is full: {CONTEXT + 1} tokens; expected at most {CONTEXT}"):
        session.decode_step(0)
    with pytest.raises(ResourceError, match="the context is full"):
        session.prefill([0])
    session.truncate(CONTEXT - 2)
    assert_close(session.prefill(IDS[-2:]), case.wanted[-1])


def test_an_answer_ends_where_the_context_does(case: Case):
    result = case.llm.generate(IDS[:-3], max_tokens=10, temperature=0)
    assert (result.finish_reason, result.note) == ("length", f"the context is full: {CONTEXT} tokens")
    assert len(result.token_ids) == 4
    with pytest.raises(UsageError, match=f"the prompt has {CONTEXT + 1} tokens; the context holds {CONTEXT}"):
        case.llm.generate([*IDS, 0], max_tokens=1)
    with pytest.raises(ResourceError, match="the context is full"):
        case.llm.logits([*IDS, 0])
