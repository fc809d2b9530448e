"""Display of answers in `chat`: streamed Markdown with dimmed reasoning on a terminal, plain text elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

THINK, END_OF_THOUGHT = "<think>", "</think>"
FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
UPDATES_PER_SECOND = 8


class Display(Protocol):
    """Displays an answer piece by piece."""

    def add(self, piece: str) -> None: ...


@contextmanager
def display(in_thought: bool) -> Iterator[Display]:
    """The display of one answer. in_thought: the prompt has already opened the model's reasoning."""
    if not sys.stdout.isatty():
        yield Plain()
        click.echo()
        return
    from rich.console import Console

    shown = Terminal(Console(), in_thought)
    try:
        yield shown
    finally:
        shown.close()


class Plain:
    """Prints the text unchanged."""

    def add(self, piece: str) -> None:
        click.echo(piece, nl=False)


class Terminal:
    """Prints each finished block as Markdown once, and redraws the unfinished last block with every piece."""

    def __init__(self, console: Console, in_thought: bool):
        from rich.live import Live

        self._console = console
        self._in_thought = in_thought
        self._text = ""
        self._live: Live = Live(
            console=console, transient=True, refresh_per_second=UPDATES_PER_SECOND, vertical_overflow="ellipsis"
        )
        self._live.start()

    def add(self, piece: str) -> None:
        self._text += piece
        while (end := _first_end(self._text, self._in_thought)) is not None:
            self._print(self._text[:end])
            self._text = self._text[end:]
        self._live.update(_drawn(self._text, self._in_thought))

    def close(self) -> None:
        """Print the remaining text."""
        self._live.stop()
        self._print(self._text)

    def _print(self, block: str) -> None:
        """Print a block; a tag at its end begins or ends the reasoning."""
        shown = block.removesuffix(THINK).removesuffix(END_OF_THOUGHT)
        if shown.strip():
            self._console.print(_drawn(shown, self._in_thought))
        if block != shown:
            self._in_thought = block.endswith(THINK)


def _first_end(text: str, in_thought: bool) -> int | None:
    """The end of the text's first block: an empty line outside of code, or after a tag; None if it is unfinished."""
    tag = END_OF_THOUGHT if in_thought else THINK
    ends = [at + len(tag)] if (at := text.find(tag)) >= 0 else []
    ends += [m.end() for m in re.finditer(r"\n\s*\n", text) if len(FENCE.findall(text[: m.start()])) % 2 == 0][:1]
    return min(ends, default=None)


def _drawn(text: str, in_thought: bool) -> RenderableType:
    from rich.markdown import Markdown
    from rich.text import Text

    return Text(text.strip(), style="dim italic") if in_thought else Markdown(text)
