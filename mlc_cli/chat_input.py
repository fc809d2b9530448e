"""Keyboard input of `chat`: messages of one or several lines, and their history."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlc_cli import console
from mlc_errors import UsageError

BLOCK = '"""'
EXPECTED = '{"content": TEXT, "images": [FILE, ...]} or {"command": "/NAME ARGUMENT"}'
HISTORY, HISTORY_LINES = "chat_history", 1000
SHOWN = 80


def typed_messages() -> Iterator[str]:
    """Yield the typed commands, which begin with a slash, and messages until the end of input."""
    with _line_editing():
        while (line := _read_line("> ")) is not None:
            if line.startswith("/"):
                yield line
            else:
                yield _whole_message(line)
                _drop_typed()


class Request(NamedTuple):
    """A line of input with --json: a message with its image files, or a command."""

    content: str | None
    images: tuple[str, ...] = ()
    command: str = ""


def read_request(line: str) -> Request:
    """Parse a JSON object to a request. Raises UsageError for any other text."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the line is no JSON: {error}; expected {EXPECTED}") from None
    match found:
        case {"content": str(content), "images": [*images], **rest} if not rest and _are_names(images):
            return Request(content, tuple(images))
        case {"content": str(content), **rest} if not rest:
            return Request(content)
        case {"command": str(command), **rest} if not rest and command.startswith("/"):
            return Request(None, command=command)
    raise UsageError(f"got {line.strip()[:SHOWN]}; expected {EXPECTED}")


def _are_names(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _whole_message(line: str) -> str:
    """Read the rest of a message: up to the closing triple quotes, or while lines end with a backslash."""
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


def _drop_typed() -> None:
    """Discard the keys that were typed during an answer."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)


@contextlib.contextmanager
def _line_editing() -> Iterator[None]:
    """Enable line editing, bracketed paste and a persistent history, if Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    from mlc_toolchain.model_cache import cache_root, make_folder

    file = cache_root() / HISTORY
    readline.parse_and_bind("set enable-bracketed-paste on")
    readline.set_history_length(HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            make_folder(file.parent)
            readline.write_history_file(file)
