"""Output of `chat`: text, or with --json one JSON object per line (schema ``chat``)."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from mlc_cli import chat_display, console
from mlc_cli.answers import speeds
from mlc_errors import MLCError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlc_runtime.generation import GenerationResult

SCHEMA = "chat/1"


class Output(Protocol):
    """Receives the events of a conversation."""

    def begin(self) -> None:
        """Called before the first message is read."""

    def display(self, in_thought: bool) -> AbstractContextManager[chat_display.Display]:
        """The display of an answer's pieces. in_thought: the prompt has already opened the model's reasoning."""

    def answered(self, result: GenerationResult, context_tokens: int) -> None:
        """Called after the last piece. context_tokens: length of the conversation in the context."""

    def said(self, command: str, text: str) -> None:
        """Print the reply of a slash command."""

    def failed(self, error: MLCError) -> None:
        """Report a message or command that failed and did not change the conversation."""


class Text:
    """Prints answers to standard output, everything else to standard error."""

    def begin(self) -> None:
        console.note("/help lists the commands, /exit leaves")

    def display(self, in_thought: bool) -> AbstractContextManager[chat_display.Display]:
        return chat_display.display(in_thought)

    def answered(self, result: GenerationResult, context_tokens: int) -> None:
        if result.note:
            console.note(f"{result.note}; /undo or /reset makes room")
        elif result.finish_reason == "length":
            cut = f"the answer is cut after {len(result.token_ids)} tokens"
            console.note(f"{cut}; --max-tokens or /set max_tokens allows more")

    def said(self, command: str, text: str) -> None:
        console.note(text)

    def failed(self, error: MLCError) -> None:
        console.note(f"error: {error}")


class JsonLines:
    """Prints each event as one JSON line to standard output."""

    def begin(self) -> None:
        pass

    @contextmanager
    def display(self, in_thought: bool) -> Iterator[chat_display.Display]:
        yield self

    def add(self, piece: str) -> None:
        self._write("text", text=piece)

    def answered(self, result: GenerationResult, context_tokens: int) -> None:
        self._write(
            "answer",
            text=result.text,
            token_ids=result.token_ids,
            finish_reason=result.finish_reason,
            note=result.note,
            **speeds(result),
            context_tokens=context_tokens,
        )

    def said(self, command: str, text: str) -> None:
        self._write("command", command=command, text=text)

    def failed(self, error: MLCError) -> None:
        self._write("error", error=error.to_dict())

    def _write(self, event: str, **values: Any) -> None:
        console.write_line(SCHEMA, {"event": event, **values})
