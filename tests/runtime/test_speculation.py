"""Speculative decoding gives the same answers as decoding without guesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mlc_errors import UsageError
from mlc_runtime import LLM
from mlc_runtime.session import Session
from mlc_runtime.speculation import PromptLookup
from tests.runtime.fake_library import FakeLibrary, greedy, metadata, write_folder
from tests.runtime.test_native import llm as compiled  # noqa: F401  a two-layer Llama

VOCAB = 258
PROMPTS = [[3, 7, 5], [9, 8, 9, 8, 9, 8, 9, 8], list(range(20, 40)) * 2]
SETTINGS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.7, "seed": 3},
    "filtered": {"temperature": 1.2, "top_k": 9, "min_p": 0.02, "seed": 4},
    "penalized": {"temperature": 0.0, "presence_penalty": 0.4, "frequency_penalty": 0.3, "repetition_penalty": 1.1},
    "biased": {"temperature": 0.0, "logit_bias": {17: 3.0}},
}


class Counted:
    """A proposer that knows the answer ``right`` and makes the third guess of each call wrong; counts its calls."""

    def __init__(self, right: Sequence[int]):
        self.right, self.calls, self.closed = list(right), 0, False

    def propose(self, ids: Sequence[int], uniforms: Sequence[float]) -> list[int]:
        self.calls += 1
        guesses = self.right[len(ids) : len(ids) + len(uniforms)]
        return [*guesses[:2], *((g + 1) % VOCAB for g in guesses[2:3]), *guesses[3:]]

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("name", SETTINGS)
def test_the_answers_of_a_compiled_model(compiled: LLM, name: str):  # noqa: F811
    for prompt in PROMPTS:
        plain = compiled.generate(prompt, max_tokens=20, top_logprobs=1, **SETTINGS[name])
        looked_up = compiled.generate(prompt, max_tokens=20, top_logprobs=1, num_draft=3, **SETTINGS[name])
        drafted = compiled.generate(prompt, max_tokens=20, num_draft=2, draft=compiled, **SETTINGS[name])
        assert looked_up.token_ids == plain.token_ids == drafted.token_ids
        assert [p.token for p in looked_up.logprobs] == [p.token for p in plain.logprobs]
        if name != "penalized" and name != "biased":  # those settings are not the draft's
            assert drafted.accepted == drafted.guessed >= 12


def test_repetitions_are_guessed(compiled: LLM):  # noqa: F811
    result = compiled.generate(PROMPTS[2], max_tokens=20, temperature=0.0, num_draft=3)
    assert result.guessed > 0


@pytest.fixture
def llm(tmp_path: Path) -> Iterator[LLM]:
    with LLM(write_folder(tmp_path, eos_token_id=[]), FakeLibrary(metadata(VOCAB, batch=6)), num_threads=2) as llm:
        yield llm


def spoken(llm: LLM, prompt: list[int], count: int, num_draft: int):
    from mlc_runtime.generation import TextStream

    proposer = Counted([*prompt, *greedy(prompt, 100, VOCAB)])
    stream = TextStream(
        llm.sessions, llm.tokenizer, prompt, llm.sampling(max_tokens=count, temperature=0.0), proposer, num_draft
    )
    pieces = list(stream)
    assert proposer.closed and "".join(pieces) == stream.result.text
    return stream.result, proposer


@pytest.mark.parametrize("num_draft", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_wrong_guesses_are_taken_back(llm: LLM, num_draft: int, count: int):
    result, proposer = spoken(llm, [3, 4], count, num_draft)
    assert list(result.token_ids) == greedy([3, 4], count, VOCAB)
    if count == 40:
        assert result.accepted == {1: 19, 2: 26, 3: 26, 5: 26}[num_draft]
        assert proposer.calls < 24
    assert llm.session.token_ids == [3, 4, *result.token_ids][: len(llm.session.token_ids)]
    assert list(llm.generate([3, 4], max_tokens=9).token_ids) == greedy([3, 4], 9, VOCAB)


def test_guesses_end_with_the_context(llm: LLM):
    result, _ = spoken(llm, [3] * 50, 30, 5)
    assert list(result.token_ids) == greedy([3] * 50, 15, VOCAB)
    assert result.note == "the context is full: 64 tokens"


def test_a_draft_with_a_smaller_context_stops_guessing(llm: LLM, tmp_path: Path):
    other = LLM(write_folder(tmp_path, eos_token_id=[]), FakeLibrary(metadata(VOCAB, context=20)), num_threads=2)
    result = llm.generate([3, 4], max_tokens=40, num_draft=4, draft=other)
    assert list(result.token_ids) == greedy([3, 4], 40, VOCAB)
    assert 12 <= result.accepted <= 18
    assert other.model.pool.num_sequences == 0


def test_stop_texts_within_guesses(llm: LLM):
    whole = llm.generate("ab", max_tokens=30)
    stop = whole.text[9:12]
    result = llm.generate("ab", max_tokens=30, stop=stop, num_draft=5, draft=llm)
    assert result.text == whole.text[: whole.text.index(stop)] and result.finish_reason == "stop"


def test_the_draft_follows_a_context_that_is_cut(llm: LLM):
    plain = llm.generate([3, 4], max_tokens=150, overflow="shift")
    assert plain.forgotten > 60
    for guess in ({"num_draft": 3}, {"num_draft": 3, "draft": llm}):
        assert llm.generate([3, 4], max_tokens=150, overflow="shift", **guess).token_ids == plain.token_ids


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_draft": 6}, "num_draft is 6; expected 1 to 5, as the library is compiled"),
        ({"num_draft": -1}, "num_draft is -1; expected 1 to 5"),
        ({"num_draft": 2, "n": 2}, "on_text and num_draft are for one answer"),
    ],
)
def test_guesses_that_cannot_be_made(llm: LLM, given: dict, message: str):
    with pytest.raises(UsageError, match=message):
        llm.generate([1, 2], max_tokens=3, **given)


def test_a_draft_without_guesses_is_refused(llm: LLM):
    with pytest.raises(UsageError, match="a draft model is given, and num_draft is 0"):
        llm.generate([1, 2], draft=llm)


def test_look_up_takes_the_longest_and_latest_run():
    lookup = PromptLookup()
    text = [1, 2, 3, 4, 5, 9, 2, 3, 7, 8, 2, 3]
    assert lookup.propose(text, [0.0] * 3) == [7, 8, 2]  # after the latest [2, 3]
    assert lookup.propose([*text, 4], [0.0] * 2) == [5, 9]  # after [2, 3, 4]
    assert lookup.propose([*text, 4, 6], [0.0] * 2) == []
    assert lookup.propose([5, 6, 5, 6], [0.0] * 5) == [5, 6, 5, 6, 5]  # another text, whose guesses go on


def test_verify_keeps_the_tokens_that_are_drawn(llm: LLM):
    session: Session = llm.new_session()
    session.extend([3, 4])
    right = greedy([3, 4], 4, VOCAB)
    sampling = llm.sampling(temperature=0.0)
    drawn = session.verify([*right[:3], 1], sampling, [], [0.0] * 4)
    assert [d.token for d in drawn] == right[1:4] and session.token_ids == [3, 4, *right[:3]]
    assert session.decode_step(right[3]).argmax() == greedy([3, 4], 5, VOCAB)[4]
