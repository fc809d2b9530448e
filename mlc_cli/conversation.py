"""The conversation of `chat`: messages, answers and slash commands."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlc_cli import console, running
from mlc_cli.chat_display import THINK
from mlc_cli.chat_input import read_request, typed_messages
from mlc_cli.chat_output import JsonLines, Output, Text
from mlc_cli.sampling_options import Choice, Guesses
from mlc_errors import MLCError, UsageError
from mlc_files import cannot_write, read_limited, whole_file

if TYPE_CHECKING:
    from mlc_runtime.generation import GenerationResult
    from mlc_runtime.llm import LLM
    from mlc_runtime.sampling import Sampling

HELP = """\
/help              this text
/system [TEXT]     set the system message and start over; without TEXT: remove it
/set [NAME VALUE]  change how tokens are chosen: temperature 0.2, max_tokens 100, seed default; alone: show it
/image FILE        show an image with the next message
/undo              forget the last message and its answer
/reset             forget the conversation
/save FILE         write the conversation as JSON
/load FILE         continue the conversation in a file
/stats             speed of the last answer, and how full the context is
/exit              leave; so does Ctrl-D
A line that ends with \\ goes on in the next. Lines between two \"\"\" are one message, and so are pasted ones.
Ctrl-C stops an answer."""
SETTINGS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical_p"), float),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), float),
    **dict.fromkeys(("top_k", "seed", "max_tokens"), int),
    "overflow": str,
}
DEFAULT = "default"
LAST_IDS = 8
SAVED_BYTES = 64 << 20


class Conversation:
    """The messages so far, and the loop that reads and answers them."""

    def __init__(
        self,
        llm: LLM,
        choice: Choice,
        max_tokens: int | None,
        system: str | None,
        speculation: Guesses,
        as_json: bool = False,
    ):
        self.llm, self.speculation, self.reads_json = llm, speculation, as_json
        self.output: Output = JsonLines() if as_json else Text()
        self.choice, self.max_tokens = choice, max_tokens
        self.sampling = self._sampling()
        self.last: GenerationResult | None = None
        self.messages: list[dict[str, Any]] = []
        self.images: list[str] = []
        self.set_system(system or "")
        self.commands: dict[str, Callable[[str], str]] = {
            "/help": lambda _: HELP,
            "/system": self.set_system,
            "/set": self.set,
            "/image": self.add_image,
            "/undo": self.undo,
            "/reset": self.reset,
            "/save": self.save,
            "/load": self.load,
            "/stats": self.stats,
        }

    def run(self) -> None:
        self.output.begin()
        for line in typed_messages():
            try:
                if not self.follow(line):
                    return
            except MLCError as error:
                self.output.failed(error)

    def follow(self, line: str) -> bool:
        """Execute a command or answer a message; returns False at the end of the conversation."""
        if self.reads_json and line.lstrip().startswith("{"):
            request = read_request(line)
            if request.content is not None:
                self._add_images(request.images)
                self.turn(request.content)
                return True
            line = request.command
        name, _, argument = line.partition(" ")
        if name in ("/exit", "/quit"):
            return False
        if line.startswith("/"):
            self.output.said(name, self.command(name, argument.strip()))
        elif line.strip():
            self.turn(line)
        return True

    def command(self, name: str, argument: str = "") -> str:
        """Execute a slash command; returns the text to print."""
        if name not in self.commands:
            raise UsageError(f"no command {name}; /help lists them")
        return self.commands[name](argument)

    def turn(self, text: str) -> None:
        """Answer a user message; if that fails, remove it."""
        from mlc_runtime.image_prompt import user_message

        self.messages.append(user_message(text, self.images))
        self.images = []
        try:
            answer = self.answer()
        except MLCError:
            self.messages.pop()
            raise
        self.messages.append({"role": "assistant", "content": answer})

    def answer(self) -> str:
        """Print the model's answer as it is generated; Ctrl-C ends it and keeps the text so far."""
        ids = self.llm.chat_prompt(self.messages)
        stream = self.llm.stream(ids, self.sampling, **self.speculation)
        with self.output.display(self._opens_thought(ids)) as shown, contextlib.suppress(KeyboardInterrupt):
            for piece in stream:
                shown.add(piece)
        self.last = stream.result
        self.output.answered(self.last, len(self.llm.session.token_ids))
        return self.last.text

    def set(self, argument: str) -> str:
        """Change a setting of ``SETTINGS``."""
        name, _, value = argument.partition(" ")
        if not name:
            return "\n".join(f"{key:<20}{self._setting(key)}" for key in SETTINGS)
        if name not in SETTINGS:
            raise UsageError(f"no setting {name!r}; expected one of {', '.join(SETTINGS)}")
        try:
            parsed = None if value.strip() == DEFAULT else SETTINGS[name](value.strip())
        except ValueError:
            raise UsageError(f"{name} is {value.strip()!r}; expected a number, or {DEFAULT}") from None
        before = self.choice, self.max_tokens
        if name == "max_tokens":
            self.max_tokens = parsed
        else:
            overflow = {"overflow": parsed or Choice.overflow} if name == "overflow" else {name: parsed}
            self.choice = replace(self.choice, **overflow)
        try:
            self.sampling = self._sampling()
        except MLCError:
            self.choice, self.max_tokens = before
            raise
        return f"{name} is {self._setting(name)}"

    def add_image(self, path: str) -> str:
        """Attach an image to the next message, if it can be read."""
        from mlc_runtime.images import load_image

        if not path:
            raise UsageError("/image needs the name of a file")
        _ = self.llm.model.images  # raises where the model takes none
        height, width, _ = load_image(path).shape
        self.images.append(path)
        return f"an image of {width} x {height} pixels goes with the next message"

    def _add_images(self, paths: Sequence[str]) -> None:
        """Attach all images, or none if one cannot be read."""
        before = list(self.images)
        try:
            for path in paths:
                self.add_image(path)
        except MLCError:
            self.images = before
            raise

    def set_system(self, text: str) -> str:
        """Start over with this system message, without images."""
        self.images = []
        self.messages = [{"role": "system", "content": text}] if text else []
        return "the system message is set" if text else "there is no system message"

    def reset(self, _: str = "") -> str:
        self.set_system(self.messages[0]["content"] if self._has_system() else "")
        return "the conversation is forgotten"

    def undo(self, _: str = "") -> str:
        """Remove the last user message and everything after it."""
        asked = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        if not asked:
            return "there is nothing to undo"
        del self.messages[asked[-1] :]
        return f"forgotten; the conversation has {len(self.messages)} messages"

    def save(self, path: str) -> str:
        if not path:
            raise UsageError("/save needs the name of a file")
        try:
            with whole_file(Path(path)) as file:
                file.write(console.to_json(self.messages).encode())
        except OSError as error:
            raise cannot_write("the conversation", Path(path), error) from None
        return f"{len(self.messages)} messages are in {path}"

    def load(self, path: str) -> str:
        """Load a conversation written by ``save``."""
        if not path:
            raise UsageError("/load needs the name of a file")
        try:
            found = json.loads(read_limited(Path(path), SAVED_BYTES))
        except OSError as error:
            raise MLCError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise MLCError(f"{path} is no JSON: {error}") from None
        if not isinstance(found, list) or not all(_is_message(message) for message in found):
            raise MLCError(f"{path} is no conversation; expected a list of objects with role and content")
        self.messages, self.images = found, []
        return f"{len(found)} messages"

    def stats(self, _: str = "") -> str:
        context = f"context {len(self.llm.session.token_ids)} of {self.llm.session.max_tokens} tokens"
        return f"{running.speed(self.last)}\n{context}" if self.last else context

    def _sampling(self) -> Sampling:
        return self.llm.with_chat_stops(self.choice.sampling(self.llm, self.max_tokens))

    def _setting(self, name: str) -> str:
        value = self.max_tokens if name == "max_tokens" else getattr(self.choice, name)
        return DEFAULT if value is None else str(value)

    def _opens_thought(self, ids: Sequence[int]) -> bool:
        """Whether the prompt ends with the tag that opens the model's reasoning."""
        last = [i for i in ids[-LAST_IDS:] if i >= 0]  # images have ids below 0
        return self.llm.tokenizer.decode(last, skip_special_tokens=False).rstrip().endswith(THINK)

    def _has_system(self) -> bool:
        return bool(self.messages) and self.messages[0]["role"] == "system"


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str | list)
    )
