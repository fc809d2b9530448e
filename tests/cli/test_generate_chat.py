"""generate and chat on the fake model: output streams, options, and the commands of a conversation."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import mlc_runtime.llm
from mlc_cli import __main__ as command_line
from mlc_cli import running
from mlc_cli.chat import chat
from mlc_cli.generate import generate
from mlc_errors import MLCError, UsageError
from tests.runtime.fake_images import FakeImages, with_images, write_image_folder
from tests.runtime.fake_library import FakeLibrary, greedy, metadata, write_folder

VOCAB = 258
RealLLM = mlc_runtime.llm.LLM


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model folder; commands open it with the fake library."""

    def open_fake(folder, model_lib, num_threads, progress, device):
        return RealLLM(folder, FakeLibrary(metadata(VOCAB, context=256)), num_threads, progress=progress)

    monkeypatch.setattr(mlc_runtime.llm, "LLM", open_fake)
    (tmp_path / "lib.so").touch()
    return write_folder(tmp_path, eos_token_id=[])


def run(command, *args: object, text: str | None = None):
    result = CliRunner().invoke(command, list(map(str, args)), input=text, catch_exceptions=False)
    assert result.exit_code == 0
    return result


@pytest.fixture
def llm(folder):
    return RealLLM(folder, FakeLibrary(metadata(VOCAB, context=256)))


def answer_to(llm, prompt: str, count: int) -> str:
    return llm.tokenizer.decode(greedy(llm.tokenizer.encode(prompt), count, VOCAB))


def test_generate_wraps_the_prompt_in_the_chat_template(folder, llm):
    result = run(generate, folder, "--prompt", "hey", "--max-tokens", 9)
    assert result.stdout == answer_to(llm, "[user]hey\n[a]", 9) + "\n"
    assert result.stderr.startswith("prompt 13 tokens, ") and result.stderr.endswith(" tok/s; length\n")


def test_generate_raw_from_standard_input_as_json(folder, llm):
    shown = json.loads(run(generate, folder, "--raw", "--json", "--max-tokens", 5, text="hey").stdout)
    expected = greedy(llm.tokenizer.encode("hey"), 5, VOCAB)
    assert (shown["token_ids"], shown["text"]) == (expected, llm.tokenizer.decode(expected))
    assert (shown["finish_reason"], shown["prompt_tokens"]) == ("length", 3)


def test_a_folder_without_template_is_continued(folder, llm):
    (folder / "chat_template.jinja").unlink()
    assert run(generate, folder, "-p", "hey", "--max-tokens", 4).stdout == answer_to(llm, "hey", 4) + "\n"
    for command, words in ((chat, ()), (generate, ("-p", "hey", "--chat"))):
        with pytest.raises(MLCError, match="no chat template"):
            run(command, folder, *words)


def test_seed_and_temperature_reach_the_sampler(folder):
    def shown(*options: object):
        return run(generate, folder, "-p", "x", "--max-tokens", 12, "--raw", "--json", *options).stdout

    hot = [json.loads(shown("--temperature", 5, "--seed", seed))["token_ids"] for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]
    cold = [json.loads(shown(*o))["token_ids"] for o in (["--greedy"], ["--temperature", 0], ["--top-p", 0.001])]
    assert cold[0] == cold[1] == cold[2]


@pytest.mark.parametrize(
    ("options", "zeros"),
    [
        ([], 8),
        (["--frequency-penalty", 2], 6),
        (["--presence-penalty", 1], 8),
        (["--repetition-penalty", 100], 8),
        (["--presence-penalty", 1, "--repetition-penalty", 100], 1),
        (["--logit-bias", "1=3", "--logit-bias", "0=-5"], 8),
        (["--logit-bias", "1=6", "--logit-bias", "0=-5"], 0),
    ],
)
def test_penalties_reach_the_sampler(folder, options, zeros):
    """The sum of the ids and 7 is the size of the vocabulary: token 0 follows, with the logit 10, others have 0."""
    result = run(generate, folder, "-p", "yyl!", "--raw", "--json", "--greedy", "--max-tokens", 8, *options)
    assert [i == 0 for i in json.loads(result.stdout)["token_ids"]] == [True] * zeros + [False] * (8 - zeros)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--greedy", "--temperature", "1"], "--greedy and --temperature 1.0 exclude each other"),
        (["--top-p", "2"], "top_p is 2.0; expected more than 0 and at most 1"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--logit-bias", "7"], "--logit-bias: got '7'; expected ID=BIAS, as 50256=-100"),
        (["--logit-bias", "7=101"], "logit_bias of token 7 is 101.0; expected -100 to 100"),
        (["--threads", "0"], "--threads: got 0; expected 1 to 256"),
        (["--top-k", "-1"], "top_k is -1; expected an integer of at least 0"),
        (["--min-p", "2"], "min_p is 2.0; expected 0 to 1"),
        (["--typical-p", "0"], "typical_p is 0.0; expected more than 0"),
        (["--overflow", "drop"], "overflow is 'drop'; expected one of stop, shift, sinks"),
        (["--stop-id", "-4"], "stop_ids has the token id -4"),
        (["--top-logprobs", "2"], "--top-logprobs is a part of the JSON object"),
        (["-n", "0"], "-n is 0; expected at least 1"),
        (["-n", "2", "--num-draft", "2"], "--num-draft is for one answer"),
        (["--num-draft", "99"], "num_draft is 99; expected 1 to"),
    ],
)
def test_wrong_options_are_one_message(folder, capsys, options, message):
    status = command_line.main(["generate", str(folder), "--prompt", "x", *options])
    assert status == 2 and f"error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "narrowest", [["--top-k", 1], ["--top-p", 0.001], ["--min-p", 1], ["--typical-p", 0.001, "--top-k", 1]]
)
def test_filters_reach_the_sampler(folder, narrowest):
    def ids(*options: object) -> list[int]:
        common = ("-p", "x", "--max-tokens", 12, "--raw", "--json", "--seed", 1)
        return json.loads(run(generate, folder, *common, *options).stdout)["token_ids"]

    hot = ("--temperature", 100)
    assert ids(*hot, *narrowest) == ids("--greedy") != ids(*hot)


def test_stop_conditions_and_guesses_reach_the_answer(folder):
    def shown(*options: object) -> dict:
        return json.loads(run(generate, folder, "-p", "x", "--max-tokens", 9, "--greedy", "--json", *options).stdout)

    whole = shown()
    assert shown("--stop", whole["text"][3])["text"] == whole["text"][: whole["text"].index(whole["text"][3])]
    ended = shown("--stop-id", whole["token_ids"][4])
    assert ended["token_ids"] == whole["token_ids"][: whole["token_ids"].index(whole["token_ids"][4])]
    assert ended["finish_reason"] == "stop"
    drafted = shown("--draft", folder, "--num-draft", 3)
    assert drafted["token_ids"] == whole["token_ids"] and drafted["accepted"] == drafted["guessed"] >= 6
    assert shown("--num-draft", 3)["token_ids"] == whole["token_ids"]


def test_end_tokens_can_be_ignored(folder):
    """Token 256 ends answers; a bias makes it the only one."""
    config = json.loads((folder / "mlc-chat-config.json").read_text())
    (folder / "mlc-chat-config.json").write_text(json.dumps({**config, "eos_token_id": 256}))
    common = ("-p", "x", "--max-tokens", 3, "--greedy", "--json", "--logit-bias", "256=100")
    assert json.loads(run(generate, folder, *common).stdout)["token_ids"] == []
    assert json.loads(run(generate, folder, *common, "--ignore-eos").stdout)["token_ids"] == [256] * 3


def test_several_answers(folder):
    common = ("-p", "x", "--max-tokens", 5, "--temperature", 9, "--seed", 1, "-n", 3)
    answers = [a["text"] for a in json.loads(run(generate, folder, *common, "--json").stdout)["answers"]]
    assert len(set(answers)) == 3
    result = run(generate, folder, *common)
    assert result.stdout == "".join(f"{text}\n" for text in answers) and "answer 3 of 3" in result.stderr


def test_log_probabilities_are_in_the_object(folder):
    shown = run(generate, folder, "-p", "x", "--max-tokens", 2, "--greedy", "--json", "--top-logprobs", 1).stdout
    for token, found in zip(json.loads(shown)["token_ids"], json.loads(shown)["logprobs"], strict=True):
        assert found["top_logprobs"] == [{"token_id": token, "token": found["token"], "logprob": found["logprob"]}]


def test_a_full_context_is_shifted(folder):
    common = ("-p", "x" * 250, "--raw", "--max-tokens", 200, "--greedy", "--json")
    assert "the context is full" in json.loads(run(generate, folder, *common).stdout)["note"]
    shifted = json.loads(run(generate, folder, *common, "--overflow", "shift").stdout)
    assert len(shifted["token_ids"]) == 200 and shifted["forgotten"] >= 128


def test_chat_says_that_an_answer_is_cut(folder):
    assert (
        "the answer is cut after 6 tokens; --max-tokens or /set max_tokens allows more"
        in conversation(folder, "a").stderr
    )


def conversation(folder, *lines: str, options: tuple[object, ...] = ()):
    return run(chat, folder, "--max-tokens", 6, *options, text="\n".join(lines))


def test_chat_answers_with_the_history(folder, llm):
    shown = conversation(folder, "a", "b", "/exit", "never read").stdout
    first = answer_to(llm, "[user]a\n[a]", 6)
    second = answer_to(llm, f"[user]a\n[assistant]{first}\n[user]b\n[a]", 6)
    assert shown == f"{first}\n{second}\n"


def test_chat_commands(folder, llm):
    lines = ["/system S", "a", "/stats", "/reset", "a", "/system", "a", "/what", "/help"]
    result = conversation(folder, *lines)
    with_system, without = answer_to(llm, "[system]S\n[user]a\n[a]", 6), answer_to(llm, "[user]a\n[a]", 6)
    assert result.stdout == f"{with_system}\n{with_system}\n{without}\n"
    assert "context 26 of 256 tokens" in result.stderr
    assert "no command /what" in result.stderr and "/reset             forget" in result.stderr


@pytest.fixture
def image_folder(tmp_path, monkeypatch):
    """As ``folder``, for a model that takes images; image.png is in it."""

    def open_fake(folder, model_lib, num_threads, progress, device):
        return RealLLM(folder, FakeImages(with_images(256)), num_threads, progress=progress)

    monkeypatch.setattr(mlc_runtime.llm, "LLM", open_fake)
    Image.fromarray(np.full((2, 2, 3), 9, np.uint8)).save(tmp_path / "image.png")
    (tmp_path / "lib.so").touch()
    return write_image_folder(tmp_path)


def test_images_precede_the_prompt(image_folder):
    picture = image_folder / "image.png"
    shown = json.loads(run(generate, image_folder, "-p", "x", "--image", picture, "--max-tokens", 1, "--json").stdout)
    with RealLLM(image_folder, FakeImages(with_images())) as llm:
        ids = llm.tokenizer.encode("[user]\n<begin>!x")
    total = [*ids, 9, 9, 9]
    assert shown["token_ids"] == greedy(total, 1, 260) and shown["prompt_tokens"] == len(total)


def test_chat_with_images(image_folder):
    lines = ["/image", "/image missing.png", f"/image {image_folder / 'image.png'}", "x", "y"]
    result = conversation(image_folder, *lines)
    assert "/image needs the name of a file" in result.stderr and "cannot read the image missing.png" in result.stderr
    assert "an image of 2 x 2 pixels goes with the next message" in result.stderr
    with RealLLM(image_folder, FakeImages(with_images(256))) as llm:
        first = [*llm.tokenizer.encode("[user]\n<begin>!x"), 9, 9, 9]
        answer = llm.tokenizer.decode(greedy(first, 6, 260))
        second = [*llm.tokenizer.encode(f"[user]\n<begin>!x[assistant]{answer}[user]y"), 9, 9, 9]
        assert result.stdout == f"{answer}\n{llm.tokenizer.decode(greedy(second, 6, 260))}\n"


def test_a_model_of_text_refuses_images(folder, tmp_path):
    assert "error: fake models take no images" in conversation(folder, "/image x.png").stderr
    (tmp_path / "x.png").touch()
    with pytest.raises(MLCError, match="fake models take no images"):
        run(generate, folder, "-p", "x", "--image", tmp_path / "x.png")


def test_chat_messages_of_several_lines(folder, llm):
    shown = conversation(folder, "one\\", "two", '"""', "x", " y", '"""', options=("--system", "S")).stdout
    first = answer_to(llm, "[system]S\n[user]one\ntwo\n[a]", 6)
    second = answer_to(llm, f"[system]S\n[user]one\ntwo\n[assistant]{first}\n[user]x\n y\n[a]", 6)
    assert shown == f"{first}\n{second}\n"


def test_a_message_that_does_not_fit_is_removed(folder, llm):
    result = conversation(folder, "x" * 300, "a")
    assert "the prompt has 310 tokens; the context holds 256" in result.stderr
    assert result.stdout == answer_to(llm, "[user]a\n[a]", 6) + "\n"


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also where this process was started in the background and ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupt_stops_the_answer_only(folder, monkeypatch, interruptible):
    shown, pieces = [], []

    def echo(text="", nl=True, err=False):
        shown.append(text)
        if not nl:
            pieces.append(text)
        if len(pieces) == 1 and not nl:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("mlc_cli.chat.click.echo", echo)
    conversation(folder, "a", "/stats", "b")
    stats = next(text for text in shown if "cancelled" in text)
    assert "answer" in stats and len(shown) > 6


WRONG = {
    ("--temperature", "nan"): "temperature is nan",
    ("--greedy", "--temperature", "2"): "exclude each other",
    ("--top-p", "2"): "top_p is 2.0",
    ("--repetition-penalty", "0"): "repetition_penalty is 0",
    ("--logit-bias", "a=b"): "got 'a=b'; expected ID=BIAS",
    ("--stop-id", "-1"): "stop_ids has the token id -1",
    ("--max-tokens", "0"): "max_tokens is 0",
    ("--stop", ""): "stop has ''; expected a text that is not empty",
    ("--seed", "-1"): "seed is -1",
    ("--overflow", "bogus"): "overflow is 'bogus'",
    ("--num-draft", "-1"): "--num-draft: got -1",
    ("--threads", "0"): "--threads: got 0; expected 1 to 256",
}
WRONG_PROMPTS = {
    ("-n", "0"): "-n is 0",
    ("--image", "no.png"): "no.png is no file",
    ("--json", "--top-logprobs", "21"): "top_logprobs is 21",
}


@pytest.mark.parametrize("words", [*WRONG, *WRONG_PROMPTS])
def test_options_are_checked_before_a_model_is_prepared(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running, "prepared", lambda *_: pytest.fail("the model is prepared"))
    with pytest.raises(UsageError, match={**WRONG, **WRONG_PROMPTS}[words]):
        run(generate, "MODEL", "-p", "x", *words)
    if words in WRONG:
        with pytest.raises(UsageError, match=WRONG[words]):
            run(chat, "MODEL", *words)


def test_chat_in_json_lines(folder, llm):
    """Messages as typed and as objects give the same answers; what fails is an event, and the conversation goes on."""
    lines = [
        "hey",
        "/reset",
        '{"content": "hey"}',
        '{"command": "/undo"}',
        "{",
        '{"text": "hey"}',
        "/set top_p 7",
        "/no",
    ]
    result = run(chat, folder, "--json", "--max-tokens", 9, text="\n".join(lines))
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert {event["schema"] for event in events} == {"chat/1"} and result.stderr == ""
    answers = [event for event in events if event["event"] == "answer"]
    expected = answer_to(llm, "[user]hey\n[a]", 9)
    assert [(a["text"], a["finish_reason"], a["prompt_tokens"]) for a in answers] == [(expected, "length", 13)] * 2
    pieces = [event["text"] for event in events if event["event"] == "text"]
    assert "".join(pieces) == 2 * expected
    said = {event["command"]: event["text"] for event in events if event["event"] == "command"}
    assert said == {"/reset": "the conversation is forgotten", "/undo": "forgotten; the conversation has 0 messages"}
    problems = [event["error"]["message"] for event in events if event["event"] == "error"]
    assert [problem.split(";")[0] for problem in problems] == [
        "the line is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        'got {"text": "hey"}',
        "top_p is 7.0",
        "no command /no",
    ]


def test_images_of_json_lines(image_folder, tmp_path):
    """All images of a message are shown with it, or none of them is kept."""
    picture = tmp_path / "p.png"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(picture)
    requests = [{"content": "x", "images": [str(picture), "no.png"]}, {"content": "x"}]
    result = run(chat, image_folder, "--json", "--max-tokens", 1, text="\n".join(map(json.dumps, requests)))
    plain = run(chat, image_folder, "--json", "--max-tokens", 1, text="x")
    error, *others = (json.loads(line) for line in result.stdout.splitlines())
    assert error["event"] == "error" and "no.png" in json.dumps(error)
    assert [e["prompt_tokens"] for e in others if e["event"] == "answer"] == [
        json.loads(plain.stdout.splitlines()[-1])["prompt_tokens"]
    ]
