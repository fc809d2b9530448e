"""Generation on a model whose next token is known: sum of all ids modulo the vocabulary."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mlc_errors import MLCError, ResourceError, UsageError
from mlc_runtime import LLM
from tests.runtime.fake_library import FakeLibrary, greedy, metadata, next_token, write_folder

VOCAB = 258
LONG = list(range(1, 31))  # 30 tokens: four chunks of at most 8, two pages


def open_llm(folder, **sizes) -> LLM:
    """Open the fake model without an end token, as its sums take any value."""
    return LLM(write_folder(folder, eos_token_id=[]), FakeLibrary(metadata(VOCAB, **sizes)), num_threads=2)


@pytest.fixture
def llm(tmp_path):
    return open_llm(tmp_path)


def test_greedy_tokens_of_a_long_prompt(llm):
    result = llm.generate(LONG, max_tokens=20)
    assert list(result.token_ids) == greedy(LONG, 20, VOCAB)
    assert result.text == llm.tokenizer.decode(result.token_ids)
    assert (result.finish_reason, result.prompt_tokens, result.prefill_tokens) == ("length", 30, 30)
    assert result.decode_tokens == 19 and result.decode_rate > 0


def test_logits_after_every_token(llm):
    logits = llm.logits(LONG)
    assert logits.shape == (30, VOCAB) and logits.dtype == np.float32
    assert logits.argmax(-1).tolist() == [next_token(LONG[: i + 1], VOCAB) for i in range(30)]


def test_session_prefill_decode_truncate(llm):
    session = llm.new_session()
    assert session.prefill(LONG[:5]).argmax() == next_token(LONG[:5], VOCAB)
    assert session.prefill(LONG[5:9]).argmax() == next_token(LONG[:9], VOCAB)
    assert session.decode_step(3).argmax() == next_token([*LONG[:9], 3], VOCAB)
    session.truncate(4)
    assert session.decode_step(9).argmax() == next_token([*LONG[:4], 9], VOCAB)
    assert session.token_ids == [1, 2, 3, 4, 9]


def test_a_common_prefix_is_not_computed_again(llm):
    llm.generate(LONG, max_tokens=4)
    again = llm.generate(LONG, max_tokens=4)
    longer = llm.generate([*LONG[:20], 200, 201], max_tokens=4)
    assert (again.prefill_tokens, longer.prefill_tokens) == (1, 2)
    assert list(again.token_ids) == greedy(LONG, 4, VOCAB)
    assert list(longer.token_ids) == greedy([*LONG[:20], 200, 201], 4, VOCAB)


def test_interleaved_streams_give_the_answers_of_single_streams(llm):
    prompts = [LONG, [*LONG[:20], 7, 8], [3]]
    streams = [llm.stream(p, llm.sampling(max_tokens=9)) for p in prompts]
    pieces = [iter(stream) for stream in streams]
    for _ in range(10):
        for piece in pieces:
            next(piece, None)
    assert [list(s.result.token_ids) for s in streams] == [greedy(p, 9, VOCAB) for p in prompts]
    assert [s.result.prefill_tokens for s in streams] == [30, 2, 1]  # the second shares a prefix with the first
    assert (
        llm.generate([*LONG[:20], 7], max_tokens=1).prefill_tokens == 21
    )  # the idle session is that of the last stream


def test_a_stream_takes_a_text(llm):
    stream = llm.stream("abc", llm.sampling(max_tokens=4))
    assert "".join(stream) == stream.result.text == llm.generate("abc", max_tokens=4).text
    assert list(stream.result.token_ids) == greedy(llm.encode("abc"), 4, VOCAB)
    assert "".join(llm.stream("abc")) == llm.generate("abc").text


def test_sessions_beside_streams(llm):
    session, fork = llm.new_session(), None
    session.prefill(LONG[:9])
    for _ in llm.stream(LONG[:12], llm.sampling(max_tokens=5)):
        fork = session.fork() if fork is None else fork
        session.decode_step(2)
    assert session.decode_step(5).argmax() == next_token([*session.token_ids], VOCAB)
    assert fork.decode_step(6).argmax() == next_token([*LONG[:9], 6], VOCAB)
    assert fork.token_ids == [*LONG[:9], 6]


def test_sequences_are_removed_with_their_owners(llm):
    pool = llm.model.pool
    sessions = [llm.new_session() for _ in range(3)]
    list(llm.stream([1, 2], llm.sampling(max_tokens=3)))
    llm.generate([[1], [2]], max_tokens=3)
    llm.logits([1, 2, 3])
    assert pool.num_sequences == 4  # the last stream's is kept for the next one
    sessions.pop().close()
    del sessions
    assert pool.num_sequences == 1


def test_three_calls_per_token(llm):
    stream = iter(llm.stream([1, 2], llm.sampling(max_tokens=5)))
    next(stream)
    llm.library.calls.clear()
    next(stream)
    assert llm.library.calls == ["embed", "decode", "sample"]


def test_a_penalty_is_a_fourth_call(llm):
    stream = iter(llm.stream([1, 2], llm.sampling(max_tokens=5, presence_penalty=0.5)))
    next(stream)
    llm.library.calls.clear()
    next(stream)
    assert llm.library.calls == ["embed", "decode", "penalize", "sample"]


def test_a_bias_is_part_of_the_penalties_call(llm):
    stream = iter(llm.stream([1, 2], llm.sampling(max_tokens=5, logit_bias={7: 100})))
    next(stream)
    llm.library.calls.clear()
    next(stream)
    assert llm.library.calls == ["embed", "decode", "penalize", "sample"]


def test_a_bias_of_a_token_bans_or_forces_it(llm):
    plain = greedy([3], 4, VOCAB)
    assert llm.generate([3], max_tokens=4, logit_bias={7: 100}).token_ids == (7,) * 4
    assert llm.generate([3], max_tokens=1, logit_bias={plain[0]: -100}).token_ids != (plain[0],)
    assert llm.generate([3], max_tokens=4, logit_bias={}).token_ids == tuple(plain)


WRONG_BIASES = {
    "logit_bias of token 3 is 101; expected -100 to 100": {3: 101},
    "logit_bias of token 3 is nan; expected": {3: float("nan")},
    "logit_bias has the token id -1; expected": {-1: 1},
    "logit_bias has the token id '3'; expected an integer": {"3": 1},
    f"logit_bias has the token id {VOCAB}; expected 0 to {VOCAB - 1}": {VOCAB: 1},
}


@pytest.mark.parametrize("message", WRONG_BIASES)
def test_a_wrong_bias_is_named(llm, message):
    with pytest.raises(UsageError, match=message):
        llm.generate([1, 2], max_tokens=2, logit_bias=WRONG_BIASES[message])


def penalized(prompt: list[int], count: int, presence: float, frequency: float, repetition: float) -> list[int]:
    """Expected greedy tokens of the fake model under penalties, by the formulas: the next token has logit 10, all
    others 0."""
    answer: list[int] = []
    for _ in range(count):
        logits = np.zeros(VOCAB)
        logits[next_token([*prompt, *answer], VOCAB)] = 10
        for token in {*prompt, *answer}:
            n = answer.count(token)
            logits[token] = logits[token] / repetition - (presence + n * frequency if n else 0)
        answer.append(int(logits.argmax()))
    return answer


PENALTIES = {"presence": (2.0, 0.0, 1.0), "frequency": (0.0, 1.5, 1.0), "repetition": (1.0, 1.0, 50.0)}


@pytest.mark.parametrize("settings", PENALTIES.values(), ids=PENALTIES)
def test_penalties(tmp_path, settings):
    names = ("presence_penalty", "frequency_penalty", "repetition_penalty")
    folder = write_folder(tmp_path, eos_token_id=[], **dict(zip(names, settings, strict=True)))
    llm = LLM(folder, FakeLibrary(metadata(VOCAB, context=600)), num_threads=2)
    prompts = [[251], [3, 5, 5, 243], list(range(VOCAB)) + [0] * 60]  # the first stays at 251 + 7 = 0 modulo 258
    expected = [penalized(p, 20, *settings) for p in prompts]
    assert [list(llm.generate(p, max_tokens=20).token_ids) for p in prompts] == expected
    assert [list(r.token_ids) for r in llm.generate(prompts, max_tokens=20)] == expected
    plain = llm.generate(prompts[0], max_tokens=20, presence_penalty=0, frequency_penalty=0, repetition_penalty=1)
    assert list(plain.token_ids) == greedy(prompts[0], 20, VOCAB)


@pytest.mark.parametrize(
    ("name", "value"),
    [("presence_penalty", 100), ("frequency_penalty", -2.1), ("repetition_penalty", 0), ("repetition_penalty", "x")],
)
def test_a_wrong_penalty_is_named(tmp_path, name, value):
    llm = LLM(write_folder(tmp_path, **{name: value}), FakeLibrary(metadata(VOCAB)))
    with pytest.raises(MLCError, match=rf"mlc-chat-config.json.*{name} is '?{value}'?; expected"):
        llm.generate([1, 2], max_tokens=2)
    if not isinstance(value, str):
        with pytest.raises(UsageError, match=f"^{name} is {value}"):
            LLM(write_folder(tmp_path), FakeLibrary(metadata(VOCAB))).generate([1, 2], **{name: value})


WRONG_SETTINGS = {
    "eos_token_id is 'x'; expected an integer or a list of integers": {"eos_token_id": "x"},
    "eos_token_id is [1, '2']; expected an integer or a list of integers": {"eos_token_id": [1, "2"]},
    "conv_template is 5; expected an object": {"conv_template": 5},
    "stop_str is 'x'; expected a list of strings": {"conv_template": {"stop_str": "x"}},
    "stop_token_ids is 5; expected a list of integers": {"conv_template": {"stop_token_ids": 5}},
}


@pytest.mark.parametrize("message", WRONG_SETTINGS)
def test_a_wrong_setting_is_named(tmp_path, message):
    llm = LLM(write_folder(tmp_path, **WRONG_SETTINGS[message]), FakeLibrary(metadata(VOCAB)))
    with pytest.raises(MLCError, match=re.escape(message)):
        llm.generate([1, 2], max_tokens=2)


def test_a_configuration_that_is_a_pipe_is_named(tmp_path):
    path = write_folder(tmp_path) / "mlc-chat-config.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MLCError, match="mlc-chat-config.json is not a regular file"):
        LLM(tmp_path, FakeLibrary(metadata(VOCAB))).generate([1], max_tokens=1)


def test_a_configuration_that_is_a_list_is_named(tmp_path):
    (write_folder(tmp_path) / "mlc-chat-config.json").write_text("[]")
    with pytest.raises(MLCError, match="mlc-chat-config.json: got a JSON list; expected an object"):
        LLM(tmp_path, FakeLibrary(metadata(VOCAB))).generate([1], max_tokens=1)


def test_batch_gives_the_answers_of_single_prompts(llm):
    prompts = [[3], LONG, [5, 6, 7], LONG[:17], [9, 9], [250]]  # six prompts, batches of at most 4
    results = llm.generate(prompts, max_tokens=12)
    assert [list(r.token_ids) for r in results] == [greedy(p, 12, VOCAB) for p in prompts]
    assert "batch_decode" in llm.library.calls
    assert llm.library.calls.count("batch_prefill") == 8  # 1 + 30 + 3 + 17 tokens in calls of 8, then 3
    assert "prefill" not in llm.library.calls


def test_batches_are_bound_once_for_each_power_of_two(llm, monkeypatch):
    bound, bind = [], llm.model.bind
    monkeypatch.setattr(llm.model, "bind", lambda name, *args: bound.append(name) or bind(name, *args))
    llm.generate([[1], [2], [3]], max_tokens=8)
    llm.generate([[1], [2]], max_tokens=8)
    assert [name for name in bound if "decode" in name] == ["batch_decode", "batch_decode"]
    llm.generate([[3], [4], [5], [6], [7]], max_tokens=8)
    assert [name for name in bound if "decode" in name] == ["batch_decode", "batch_decode", "decode"]


def test_batch_members_end_at_different_times(tmp_path):
    first = greedy([8], 4, VOCAB)
    llm = LLM(write_folder(tmp_path, eos_token_id=first[3]), FakeLibrary(metadata(VOCAB)))
    prompts = [[8], [2, 2], [4]]
    expected = [llm.generate(p, max_tokens=20).token_ids for p in prompts]
    assert [r.token_ids for r in llm.generate(prompts, max_tokens=20)] == expected
    assert list(expected[0]) == first[:3]


def test_end_token_is_not_part_of_the_answer(tmp_path):
    folder = write_folder(tmp_path, eos_token_id=[256, greedy([8], 3, VOCAB)[2]])
    result = LLM(folder, FakeLibrary(metadata(VOCAB))).generate([8], max_tokens=50)
    assert (list(result.token_ids), result.finish_reason) == (greedy([8], 2, VOCAB), "stop")


def test_stop_text_ends_the_answer(llm):
    text = llm.generate("ab", max_tokens=12).text
    stop = text[4:7]
    result = llm.generate("ab", max_tokens=12, stop=[stop, "never"])
    assert (result.text, result.finish_reason) == (text[: text.index(stop)], "stop")


def test_pieces_are_the_text_and_never_half_a_character(llm):
    pieces: list[str] = []
    result = llm.generate("x", max_tokens=40, on_text=pieces.append)
    assert "".join(pieces) == result.text == llm.tokenizer.decode(result.token_ids)
    assert len(pieces) > 5 and "" not in pieces


def test_full_context_ends_the_answer(llm):
    result = llm.generate(LONG)
    assert len(result.token_ids) == 64 - 30 + 1
    assert list(result.token_ids) == greedy(LONG, 35, VOCAB)
    assert (result.finish_reason, result.note) == ("length", "the context is full: 64 tokens")
    (batched,) = llm.generate([LONG])
    assert (batched.token_ids, batched.note) == (result.token_ids, result.note)


def test_prompt_longer_than_the_context(llm):
    with pytest.raises(UsageError, match="has 65 tokens; the context holds 64"):
        llm.generate([1] * 65)
    with pytest.raises(ResourceError, match="65 tokens; expected at most 64"):
        llm.logits([1] * 65)
    assert list(llm.generate([1] * 64).token_ids) == [next_token([1] * 64, VOCAB)]


def test_a_cancelled_answer_leaves_a_usable_session(llm):
    stream = llm.stream(LONG, llm.sampling())
    for _ in stream:
        break
    assert stream.result.finish_reason == "cancelled"
    assert list(llm.generate(LONG[:10], max_tokens=3).token_ids) == greedy(LONG[:10], 3, VOCAB)


def test_seed_decides_the_sampled_tokens(llm):
    def answer(seed):
        return llm.generate("q", max_tokens=8, temperature=4.0, seed=seed).token_ids

    assert answer(1) == answer(1)
    assert len({answer(seed) for seed in range(6)}) == 6
    batch = llm.generate(["q", "q"], max_tokens=8, temperature=4.0, seed=1)
    assert batch[0].token_ids == answer(1) != batch[1].token_ids
    assert llm.generate("q", max_tokens=8, temperature=4.0, top_p=0.001, seed=3).token_ids == answer_greedy(llm)


def answer_greedy(llm):
    return llm.generate("q", max_tokens=8, temperature=0).token_ids


def test_chat_uses_the_template_and_keeps_the_common_prefix(llm):
    messages = [{"role": "user", "content": "hey"}]
    first = llm.chat(messages, max_tokens=3)
    prompt = llm.tokenizer.encode("[user]hey\n[a]")
    assert list(first.token_ids) == greedy(prompt, 3, VOCAB)
    second = llm.chat([*messages, {"role": "assistant", "content": "ok"}], max_tokens=3)
    assert second.prefill_tokens == len(llm.tokenizer.encode("assistant]ok\n[a]")) - 1  # "[a" was there


def test_chat_falls_back_to_the_conversation_template(tmp_path):
    conversation = {
        "name": "t",
        "roles": {"user": "U", "assistant": "A"},
        "role_templates": {"user": "{user_message}", "assistant": "{assistant_message}"},
        "seps": ["\n"],
        "role_content_sep": ":",
        "role_empty_sep": ":",
        "system_prefix_token_ids": [257],
        "stop_str": ["", "\n"],
    }
    folder = write_folder(tmp_path, conv_template=conversation)
    (folder / "chat_template.jinja").unlink()
    llm = LLM(folder, FakeLibrary(metadata(VOCAB)))
    assert llm.has_chat_template
    assert llm.chat_prompt([{"role": "user", "content": "x"}]) == [257, *llm.tokenizer.encode("U:x\nA:")]
    assert llm.with_chat_stops(llm.sampling(stop="z")).stop == ("z", "\n")
    assert llm.sampling(stop=None, stop_ids=None) == llm.sampling()


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([1, 258], {}, "token id 258 is outside of the vocabulary; expected 0 to 257"),
        ([-1], {}, "token id -1"),
        ([], {}, "at least one integer"),
        ("x", {"temperature": -1.0}, "temperature is -1.0"),
        ("x", {"temperature": float("nan")}, "temperature is nan"),
        ("x", {"top_p": 0.0}, "top_p is 0.0"),
        ("x", {"max_tokens": 0}, "max_tokens is 0"),
        ("x", {"max_tokens": 1.5}, "max_tokens is 1.5; expected an integer"),
        ("x", {"seed": -3}, "seed is -3"),
        ("\ud800", {}, "not valid Unicode"),
    ],
)
def test_wrong_settings(llm, prompt, options, message):
    with pytest.raises(UsageError, match=message):
        llm.generate(prompt, **options)


@pytest.mark.parametrize("messages", ["hi", ["hi"], {"role": "user", "content": "hi"}, [{"content": "hi"}]])
def test_messages_that_are_not_in_chat_format(llm, messages):
    with pytest.raises(UsageError, match=r"expected a list of dicts with a role"):
        llm.chat(messages)


def test_empty_text_begins_with_the_first_special_token(llm):
    assert llm.encode("") == [257]


def test_missing_parts_are_named(tmp_path):
    with pytest.raises(MLCError, match="does not exist"):
        LLM(tmp_path / "no")
    write_folder(tmp_path)
    with pytest.raises(MLCError, match=r"lib.so does not exist"):
        LLM(tmp_path)
    llm = LLM(tmp_path, FakeLibrary(metadata(VOCAB)))
    (tmp_path / "mlc-chat-config.json").write_text('{"temperature": null}')
    with pytest.raises(MLCError, match="temperature is None; expected a number"):
        llm.generate("x")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(MLCError, match=r"tokenizer.json is missing"):
        _ = llm.tokenizer


def test_weights_of_another_model_are_refused(tmp_path):
    write_folder(tmp_path)
    with pytest.raises(MLCError, match="1 of 2 parameters") as caught:
        LLM(tmp_path, FakeLibrary(metadata(VOCAB + 1)))
    assert caught.value.where[0] == "embedding is float32 [258, 8]; the library expects float32 [259, 8]"


def test_close_ends_the_context(llm):
    assert llm.library.live_contexts == {1002}
    session = llm.new_session()
    session.prefill(LONG)
    llm.close()
    assert llm.library.live_contexts == set()
    for call in (session.sample, lambda: session.decode_step(1), lambda: llm.generate("x")):
        with pytest.raises(MLCError, match="is closed"):
            call()


def test_threads_share_a_model(llm):
    """Streams, batches, guesses, sessions and logits of four threads have the answers of one."""
    prompts = [[3, i, 5] for i in range(4)]
    expected = [greedy(p, 12, VOCAB) for p in prompts]

    def work(i: int) -> bool:
        session = llm.new_session()
        results = [llm.generate(prompts[i], max_tokens=12), *llm.generate([prompts[i]] * 3, max_tokens=12)]
        results.append(llm.generate(prompts[i], max_tokens=12, num_draft=2, draft=llm))
        tokens = [session.prefill(prompts[i]).argmax(), *(session.decode_step(t).argmax() for t in expected[i][:3])]
        tokens.append(llm.logits([*prompts[i], *expected[i][:4]])[-1].argmax())
        return tokens == expected[i][:5] and all(list(r.token_ids) == expected[i] for r in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, list(range(4)) * 5))
