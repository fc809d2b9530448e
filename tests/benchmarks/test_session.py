"""The recorder of terminal sessions."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from session import Command, Keys, Terminal, as_text

ASKING = """
import time
print("name:", end=" ", flush=True)
print("hello", input())
try:
    print("waiting", flush=True)
    while True:
        time.sleep(0.1)  # a signal just before the system call ends no sleep
except KeyboardInterrupt:
    print("\\nstopped")
"""


def python(program: str) -> str:
    return shlex.join([sys.executable, "-c", program])


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN])
def interrupts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ctrl-C is handled, or ignored as by the background job of a shell."""
    previous = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("interrupts")
def test_keys_are_typed_when_the_program_asks(tmp_path: Path):
    command = Command("", python(ASKING), (Keys("you\n", after="name: "), Keys("\x03", after="waiting")))
    assert as_text("".join(Terminal(command, tmp_path).run())) == "name: you\nhello you\nwaiting\n^C\nstopped\n"


def test_a_program_that_fails(tmp_path: Path):
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        list(Terminal(Command("", python("raise SystemExit(3)")), tmp_path).run())


def test_text_of_what_a_terminal_is_sent():
    assert as_text("\x1b[1mbold\x1b[0m  \r\n10 %\r100 %\r\n\r\n") == "bold\n100 %\n"
    assert as_text("") == ""
