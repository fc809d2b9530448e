"""`mlc_cli chat`: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from mlc_cli import console, running
from mlc_cli.preparing import model_options
from mlc_cli.sampling_options import Choice, Guesses, draft_option, guesses, num_draft_option, sampling_options
from mlc_errors import MLCError, UsageError

if TYPE_CHECKING:
    from mlc_runtime.generation import GenerationResult
    from mlc_runtime.llm import LLM
    from mlc_runtime.sampling import Sampling
    from mlc_toolchain.prepare_plan import PrepareOptions

HELP = """\
/help            this text
/system [TEXT]   set the system message and start over; without TEXT: remove it
/image FILE      show an image with the next message
/reset           forget the conversation
/stats           speed of the last answer, and how full the context is
/exit            leave; so does Ctrl-D
A line that ends with \\ goes on in the next. Lines between two \"\"\" are one message. Ctrl-C stops an answer."""

BLOCK = '"""'


@click.command("chat")
@model_options
@click.option("--system", metavar="TEXT", help="System message of the conversation.")
@click.option(
    "--max-tokens", type=int, metavar="N", help="Longest answer; -1: until the context is full. Default: 2048."
)
@sampling_options
@num_draft_option
@draft_option
@running.threads_option
def chat(
    model: str,
    preparing: PrepareOptions,
    system: str | None,
    max_tokens: int | None,
    choice: Choice,
    num_draft: int | None,
    draft: str | None,
    threads: int | None,
) -> None:
    """Talk to the compiled model in the folder MODEL, or in HF://owner/name.

    The conversation stays in the model's cache: a turn computes only what is new. /help lists the commands.
    """
    with (
        running.load(model, preparing, threads) as llm,
        guesses(draft, num_draft, threads, preparing.device) as speculation,
    ):
        if not llm.has_chat_template:
            raise MLCError("the model has no chat template", where=[model], hint="use generate --raw")
        _enable_line_editing()
        Conversation(llm, choice.sampling(llm, max_tokens), system, speculation).run()


class Conversation:
    """The messages so far and the loop of reading and answering."""

    def __init__(self, llm: LLM, sampling: Sampling, system: str | None, speculation: Guesses):
        self.llm, self.speculation = llm, speculation
        self.sampling = llm.with_chat_stops(sampling)
        self.last: GenerationResult | None = None
        self.messages: list[dict[str, Any]] = []
        self.images: list[str] = []
        self.set_system(system)

    def run(self) -> None:
        console.note("/help lists the commands, /exit leaves")
        while (line := _read_message()) is not None:
            if line.startswith("/"):
                if not self.command(*line.split(maxsplit=1)):
                    return
            elif line.strip():
                self.turn(line)

    def command(self, name: str, argument: str = "") -> bool:
        """Execute a line that begins with a slash; False ends the conversation."""
        match name:
            case "/exit" | "/quit":
                return False
            case "/help":
                console.note(HELP)
            case "/reset":
                self.set_system(self.messages[0]["content"] if self._has_system() else None)
                console.note("the conversation is forgotten")
            case "/system":
                self.set_system(argument or None)
                console.note("the system message is set" if argument else "there is no system message")
            case "/image":
                self.add_image(argument)
            case "/stats":
                console.note(self.stats())
            case _:
                console.note(f"no command {name}; /help lists them")
        return True

    def turn(self, text: str) -> None:
        """Answer a message of the user. When that fails, the message is removed."""
        from mlc_runtime.image_prompt import user_message

        self.messages.append(user_message(text, self.images))
        self.images = []
        try:
            answer = self.answer()
        except MLCError as error:
            self.messages.pop()
            console.note(f"error: {error}")
        else:
            self.messages.append({"role": "assistant", "content": answer})

    def answer(self) -> str:
        """Print the model's answer as it is generated; Ctrl-C ends it and keeps the text so far."""
        stream = self.llm.stream(self.llm.chat_prompt(self.messages), self.sampling, **self.speculation)
        with contextlib.suppress(KeyboardInterrupt):
            for piece in stream:
                click.echo(piece, nl=False)
        click.echo()
        self.last = stream.result
        if self.last.note:
            console.note(f"{self.last.note}; /reset starts over")
        elif self.last.finish_reason == "length":
            console.note(f"the answer is cut after {len(self.last.token_ids)} tokens; --max-tokens allows more")
        return self.last.text

    def add_image(self, path: str) -> None:
        """Show an image with the next message, if it can be read."""
        from mlc_runtime.images import load_image

        try:
            if not path:
                raise UsageError("/image needs the name of a file")
            _ = self.llm.model.images  # raises where the model takes none
            height, width, _ = load_image(path).shape
        except MLCError as error:
            console.note(f"error: {error}")
            return
        self.images.append(path)
        console.note(f"an image of {width} x {height} pixels goes with the next message")

    def set_system(self, text: str | None) -> None:
        """Start over with this system message, without images."""
        self.images = []
        self.messages = [{"role": "system", "content": text}] if text else []

    def stats(self) -> str:
        context = f"context {len(self.llm.session.token_ids)} of {self.llm.session.max_tokens} tokens"
        return f"{running.speed(self.last)}\n{context}" if self.last else context

    def _has_system(self) -> bool:
        return bool(self.messages) and self.messages[0]["role"] == "system"


def _read_message() -> str | None:
    """The next message, None at the end of the input."""
    line = _read_line("> ")
    if line is None or line.startswith("/"):
        return line
    if line.strip().startswith(BLOCK):
        return _read_block(line.strip().removeprefix(BLOCK))
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(_read_line(". ") or "")
    return "\n".join(lines)


def _read_block(first: str) -> str:
    lines = [first] if first else []
    while (line := _read_line(". ")) is not None:
        if line.strip().endswith(BLOCK):
            lines += [rest] if (rest := line.strip().removesuffix(BLOCK)) else []
            break
        lines.append(line)
    return "\n".join(lines)


def _read_line(prompt: str) -> str | None:
    while True:
        try:
            return input(prompt if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            console.note("\nCtrl-D or /exit leaves")


def _enable_line_editing() -> None:
    """Arrow keys and history for input(), where Python has readline."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
