"""Commands of a conversation, its display on a terminal, and what is typed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mlc_cli import chat_input
from mlc_cli.chat_display import Terminal
from mlc_cli.conversation import Conversation
from mlc_cli.sampling_options import Choice
from mlc_errors import MLCError, UsageError
from mlc_runtime import LLM
from tests.runtime.fake_library import FakeLibrary, metadata, write_folder


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    """A conversation with the fake model."""
    llm = LLM(write_folder(tmp_path, eos_token_id=[]), FakeLibrary(metadata(258, context=256)))
    return Conversation(llm, Choice(), 6, "S", {})


def contents(talk: Conversation) -> list[str]:
    return [message["content"] for message in talk.messages]


def test_undo_forgets_a_turn(talk: Conversation):
    talk.turn("a")
    first = contents(talk)
    talk.turn("b")
    assert talk.command("/undo") == "forgotten; the conversation has 3 messages"
    assert contents(talk) == first
    talk.command("/undo")
    assert contents(talk) == ["S"] and talk.command("/undo") == "there is nothing to undo"


def test_a_saved_conversation_goes_on(talk: Conversation, tmp_path: Path):
    talk.turn("a")
    file = tmp_path / "talk.json"
    assert talk.command("/save", str(file)) == f"3 messages are in {file}"
    saved = contents(talk)
    talk.command("/reset")
    assert contents(talk) == ["S"]
    assert talk.command("/load", str(file)) == "3 messages" and contents(talk) == saved


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no JSON"),
        ('{"role": "user"}', "is no conversation"),
        ('[{"role": "user"}]', "is no conversation"),
        (None, "cannot read"),
    ],
)
def test_files_that_are_no_conversation(talk: Conversation, tmp_path: Path, text: str | None, problem: str):
    if text is not None:
        (tmp_path / "x.json").write_text(text)
    with pytest.raises(MLCError, match=problem):
        talk.command("/load", str(tmp_path / "x.json"))
    assert contents(talk) == ["S"]


@pytest.mark.parametrize("command", ["/save", "/load"])
def test_commands_that_need_a_file(talk: Conversation, command: str):
    with pytest.raises(UsageError, match=f"{command} needs the name of a file"):
        talk.command(command)


def test_set(talk: Conversation):
    assert talk.command("/set", "temperature 0.5") == "temperature is 0.5" and talk.sampling.temperature == 0.5
    assert talk.command("/set", "temperature default") == "temperature is default" and talk.sampling.temperature == 0.0
    assert talk.command("/set", "max_tokens 2") == "max_tokens is 2"
    talk.turn("a")
    assert len(talk.last.token_ids) == 2
    assert json.dumps(talk.command("/set")).count("default") == 9
    wrong = {
        "colour 3": "no setting 'colour'; expected one of temperature, ",
        "top_k x": "top_k is 'x'; expected a number, or default",
        "top_p 7": "top_p is 7.0; expected",
    }
    for argument, problem in wrong.items():
        with pytest.raises(UsageError, match=problem):
            talk.command("/set", argument)
    assert talk.choice.top_p is None


def shown(pieces: list[str], in_thought: bool = False, width: int = 40) -> str:
    """The display's output for the pieces on a console without animations."""
    file = io.StringIO()
    display = Terminal(Console(file=file, width=width, force_terminal=False), in_thought)
    for piece in pieces:
        display.add(piece)
    display.close()
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_markdown_is_shown_once(size: int):
    text = "# One\n\n- *a*\n- b\n\n```python\nx = 1\n\ny = 2\n```\n\nend"
    lines = [line.strip() for line in shown([text[i : i + size] for i in range(0, len(text), size)]).splitlines()]
    kept = [line for line in lines if line]
    assert "• a" in kept and "• b" in kept and kept[-1] == "end" and "```" not in "".join(kept)
    assert kept.index("x = 1") + 1 == kept.index("y = 2") and kept.count("• a") == 1


def test_reasoning_is_apart():
    for pieces, in_thought in ((["<think>why", "</think>", "*so*"], False), (["why</th", "ink>*so*"], True)):
        assert [line.strip() for line in shown(pieces, in_thought).splitlines() if line.strip()] == ["why", "so"]


def test_only_keys_typed_during_an_answer_are_dropped(monkeypatch: pytest.MonkeyPatch):
    typed, log = iter(["/x", '"""', "c", '"""', "a\\", "b"]), []
    monkeypatch.setattr(chat_input, "_drop_typed", lambda: log.append("drop"))
    monkeypatch.setattr(chat_input, "_read_line", lambda prompt: next(typed, None))
    for line in chat_input.typed_messages():
        log.append(line)
    assert log == ["/x", "c", "drop", "a\nb", "drop"]


def test_lines_of_one_message(monkeypatch: pytest.MonkeyPatch):
    typed = iter(["a\\", "b", '"""c', "d", '"""', "/x", "e"])
    monkeypatch.setattr(chat_input, "_read_line", lambda prompt: next(typed, None))
    assert list(chat_input.typed_messages()) == ["a\nb", "c\nd", "/x", "e"]
