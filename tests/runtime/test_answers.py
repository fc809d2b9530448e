"""Generation settings: sampling filters, stop conditions, several answers, log probabilities, a full context."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mlc_errors import MLCError, UsageError
from mlc_runtime import LLM
from mlc_runtime.llm import MAX_TOKENS
from mlc_runtime.sampling import Filters
from tests.runtime.fake_images import FakeImages, with_images, write_image_folder
from tests.runtime.fake_library import FakeLibrary, greedy, metadata, next_token, write_folder

VOCAB = 258


def open_llm(folder, config: dict | None = None, **sizes) -> LLM:
    return LLM(write_folder(folder, **(config or {})), FakeLibrary(metadata(VOCAB, **sizes)), num_threads=2)


@pytest.fixture
def llm(tmp_path) -> LLM:
    return open_llm(tmp_path, {"eos_token_id": []})


LONGEST = {"top_k": 1, "top_p": 0.001, "min_p": 1.0, "typical_p": 0.001}


@pytest.mark.parametrize("name", LONGEST)
def test_every_filter_changes_what_is_drawn(llm, name: str):
    """At temperature 100 the likeliest of 258 tokens has a share of 0.4%; the narrowest filters leave little more."""
    free = llm.generate([3], max_tokens=6, temperature=100.0, seed=1)
    narrow = llm.generate([3], max_tokens=6, temperature=100.0, seed=1, **{name: LONGEST[name]})
    assert list(free.token_ids) != list(narrow.token_ids)
    if name != "typical_p":
        assert list(narrow.token_ids) == greedy([3], 6, VOCAB)


def test_filters_are_a_function_of_their_own(llm):
    for settings, function in (({"top_p": 0.5}, "sample"), ({"top_k": 3}, "sample_filtered")):
        llm.library.calls.clear()
        llm.generate([[1], [2]], max_tokens=2, temperature=1.0, **settings)
        assert {name for name in llm.library.calls if "sample" in name} == {function}


def test_the_filters_of_the_configuration_are_the_default(tmp_path):
    chosen = {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8}
    llm = open_llm(tmp_path, chosen)
    sampling = llm.sampling(min_p=0.0)
    assert (sampling.temperature, sampling.filters) == (0.6, Filters(20, 0.9, 0.0, 0.8))


@pytest.mark.parametrize("config", [{"temperature": 1.0}, {"temperature": 1.0, "top_k": 0, "min_p": 0.0}])
def test_defaults_where_the_configuration_has_no_settings(tmp_path, config):
    sampling = open_llm(tmp_path, config).sampling()
    assert (sampling.temperature, sampling.filters.top_p, sampling.max_tokens) == (0.7, 0.95, MAX_TOKENS)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 1.0), (1.0, 0.8), (0.9, 1.0)])
def test_settings_of_the_configuration_are_kept(tmp_path, temperature: float, top_p: float):
    sampling = open_llm(tmp_path, {"temperature": temperature, "top_p": top_p}).sampling()
    assert (sampling.temperature, sampling.filters.top_p) == (temperature, top_p)


WRONG = {
    "max_tokens is 1.5; expected an integer of at least 1": {"max_tokens": 1.5},
    "max_tokens is True; expected": {"max_tokens": True},
    "max_tokens is 0; expected": {"max_tokens": 0},
    "max_tokens is -2; expected": {"max_tokens": -2},
    "top_k is -1; expected an integer of at least 0": {"top_k": -1},
    "top_k is 2.0; expected an integer": {"top_k": 2.0},
    "min_p is 1.1; expected 0 to 1": {"min_p": 1.1},
    "min_p is nan; expected 0 to 1": {"min_p": float("nan")},
    "typical_p is 0; expected more than 0": {"typical_p": 0},
    "stop has ''; expected a text that is not empty": {"stop": ["a", ""]},
    "seed is 1.5; expected an integer": {"seed": 1.5},
    "top_logprobs is 21; expected an integer from 0 to 20": {"top_logprobs": 21},
    f"stop_ids has the token id {VOCAB}; expected 0 to {VOCAB - 1}": {"stop_ids": [VOCAB]},
    "stop_ids has the token id -1; expected": {"stop_ids": [-1]},
    "overflow is 'drop'; expected one of stop, shift, sinks": {"overflow": "drop"},
    "n is 0; expected an integer of at least 1": {"n": 0},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_setting_is_named(llm, message: str):
    with pytest.raises(UsageError, match=re.escape(message)):
        llm.generate([1, 2], **WRONG[message])


@pytest.mark.parametrize(("key", "value"), [("top_k", 1.5), ("top_k", -3), ("min_p", 2), ("typical_p", "x")])
def test_a_wrong_filter_in_the_configuration_is_named(tmp_path, key: str, value: object):
    with pytest.raises(MLCError, match=f"mlc-chat-config.json: {key} is '?{value}"):
        open_llm(tmp_path, {key: value}).sampling()


def test_stop_tokens_beside_those_of_the_model(tmp_path):
    expected = greedy([8], 6, VOCAB)
    llm = open_llm(tmp_path, {"eos_token_id": expected[4]})
    assert list(llm.generate([8], max_tokens=6).token_ids) == expected[:4]
    assert list(llm.generate([8], max_tokens=6, stop_ids=[expected[2]]).token_ids) == expected[:2]
    assert list(llm.generate([8], max_tokens=6, ignore_eos=True).token_ids) == expected
    both = llm.generate([8], max_tokens=6, ignore_eos=True, stop_ids=[expected[5]])
    assert (list(both.token_ids), both.finish_reason) == (expected[:5], "stop")


def test_a_stop_text_of_several_tokens_is_never_shown(llm):
    """Tokens are bytes: of a stop text, all but the last character are held back until it is complete or impossible."""
    whole = llm.generate("stop", max_tokens=40).text
    for begin in range(4, 20, 3):
        stop, shown = whole[begin : begin + 3], list[str]()
        first = whole.index(stop)
        result = llm.generate("stop", max_tokens=40, stop=stop, on_text=shown.append)
        assert "".join(shown) == result.text == whole[:first]


def test_answers_have_a_greatest_length(tmp_path):
    llm = open_llm(tmp_path, {"eos_token_id": []}, context=MAX_TOKENS + 100, chunk=64)
    assert len(llm.generate([3]).token_ids) == MAX_TOKENS
    until_full = llm.generate([3], max_tokens=-1)
    assert (len(until_full.token_ids), until_full.note) == (MAX_TOKENS + 100, "the context is full: 2148 tokens")


def test_several_answers_to_a_prompt(llm):
    """They are those of the same prompt given as often; its beginning is computed once."""
    settings = {"max_tokens": 8, "temperature": 4.0, "seed": 5}
    prompt = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    several = llm.generate(prompt, n=3, **settings)
    assert len({r.token_ids for r in several}) == 3
    assert several[0].token_ids == llm.generate(prompt, **settings).token_ids
    assert several[0].prefill_tokens == len(prompt) - 1 + 3
    flat = llm.generate([[1, 2], prompt], n=2, **settings)
    assert [r.prompt_tokens for r in flat] == [2, 2, 10, 10]
    assert [list(r.token_ids) for r in llm.generate([9], n=3, max_tokens=4)] == [greedy([9], 4, VOCAB)] * 3
    assert llm.model.pool.num_sequences <= 1


def test_more_answers_than_a_batch_holds(llm):
    several = llm.generate([3, 4], n=6, max_tokens=3, temperature=4.0, seed=1)  # batches of 4 and 2
    assert len({r.token_ids for r in several}) == 6


def test_log_probabilities(llm):
    result = llm.generate([3, 4], max_tokens=3, top_logprobs=2)
    share = -np.log1p((VOCAB - 1) * np.exp(-10.0))  # of the next token's logit 10 among zeros
    for token, found in zip(result.token_ids, result.logprobs, strict=True):
        assert found.token == token and found.logprob == pytest.approx(share, abs=1e-5)
        assert found.top[0] == (token, pytest.approx(share, abs=1e-5))
        assert len(found.top) == 2 and found.top[1][1] == pytest.approx(share - 10, abs=1e-5)
    batch = llm.generate([[3, 4], [5]], max_tokens=3, top_logprobs=0)
    assert [len(found.top) for found in batch[0].logprobs] == [0, 0, 0]
    assert llm.generate([3], max_tokens=1).logprobs is None


def test_log_probabilities_are_those_after_penalties(llm):
    (first,) = llm.generate([3], max_tokens=1, logit_bias={7: 15}, temperature=0.5, top_k=2, top_logprobs=3).logprobs
    assert first.top[0][0] == 7 and first.top[1][0] == next_token([3], VOCAB)
    assert first.top[0][1] - first.top[1][1] == pytest.approx(5, abs=1e-4)


@pytest.mark.parametrize(("overflow", "sinks"), [("shift", 0), ("sinks", 4)])
def test_the_oldest_half_of_a_full_context_is_forgotten(tmp_path, overflow: str, sinks: int):
    llm = open_llm(tmp_path, {"eos_token_id": []}, context=20)
    prompt, expected = [3, 5, 9, 2, 4, 7, 6], list[int]()
    cached, forgotten = list(prompt), 0
    while len(expected) < 60:
        expected.append(next_token(cached, VOCAB))
        if len(cached) == 20:
            cached = cached[:sinks] + cached[sinks + (20 - sinks) // 2 :]
            forgotten += (20 - sinks) // 2
        cached.append(expected[-1])
    result = llm.generate(prompt, max_tokens=60, overflow=overflow)
    assert list(result.token_ids) == expected
    assert result.note is None and result.forgotten == forgotten > 40


def test_several_answers_end_with_the_context(llm):
    with pytest.raises(UsageError, match="overflow is 'shift'; answers that are computed together end"):
        llm.generate([3], n=2, overflow="shift")


def test_prompts_with_images_are_not_cut(tmp_path):
    llm = LLM(write_image_folder(tmp_path), FakeImages(with_images()))
    with pytest.raises(UsageError, match="overflow is 'sinks'; prompts with images cannot be cut"):
        llm.stream([1, -1, -2], llm.sampling(overflow="sinks"))
