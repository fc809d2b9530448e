"""Record a terminal session as Markdown, from `pip install` on: input, output, seconds and load.

    python benchmarks/session.py SmolLM2-135M-Instruct.gguf > docs/session.md

Nothing is cached between runs: the environment, PyPI's packages and the prepared model are created anew, from the
last commit. The terminal has no colours and cursor movements (``TERM=dumb``), so that its text can be printed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlc_evaluation.machine_limits import machine_name

ROOT = Path(__file__).resolve().parent.parent
MODEL = "SmolLM2-135M-Instruct.gguf"
ROWS, COLUMNS = 40, 110
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HEAD = """# A session

Recorded by `benchmarks/session.py`, which writes this file, in a terminal without colours. `^C` is Ctrl-C.
Below each command are the seconds that it took, and the load of the machine in the minute before: how many processes
wanted its {cores} cores ({machine}).
"""


@dataclass(frozen=True)
class Keys:
    """Keys typed ``pause`` seconds after the text ``after`` is shown."""

    text: str
    after: str = "> "
    pause: float = 0.0


@dataclass(frozen=True)
class Command:
    """A command line, the text before it in the document, and the keys typed while it runs."""

    why: str
    line: str
    keys: Sequence[Keys] = ()


CHAT = (
    Keys("/help\n"),
    Keys("/set temperature 0\n"),
    Keys("What is the capital of France?\n"),
    Keys("/stats\n"),
    Keys("Write a long story about a fox.\n"),
    Keys("\x03", after="fox.\r\n", pause=2),
    Keys("/undo\n"),
    Keys("/exit\n"),
)
COMMANDS = (
    Command("A new environment", "python3 -m venv .venv"),
    Command("The tool and what it needs, from PyPI", "pip install -qq ./mlc-cli"),
    Command("What is there", "mlc_cli doctor"),
    Command("What would be done", f"mlc_cli chat {MODEL} --dry-run"),
    Command("A conversation, of which the first run converts and compiles the model", f"mlc_cli chat {MODEL}", CHAT),
    Command("A later run", f"mlc_cli generate {MODEL} --greedy --prompt 'Write a sentence about the sea.'"),
    Command("How fast it is", f"mlc_cli bench {MODEL} --prompt-lengths 128 --generate 32"),
    Command(
        "How far it is from the same model without quantization",
        f"mlc_cli eval {MODEL} --text mlc-cli/README.md --window 512 --windows 4 --against float32",
    ),
    Command("What its kernels compute", f"mlc_cli debug_chat {MODEL} --prompt Hello --debug-dir kernels"),
    Command("What is kept", "mlc_cli cache list"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path, help="SmolLM2-135M-Instruct")
    gguf = parser.parse_args().gguf.resolve()
    print(HEAD.format(cores=os.cpu_count(), machine=machine_name()))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / MODEL).symlink_to(gguf)
        _check_out(folder / "mlc-cli")
        for command in COMMANDS:
            print(_section(command, folder), flush=True)


def _check_out(folder: Path) -> None:
    """Check out the last commit's files into a folder."""
    folder.mkdir()
    with subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "x", "-C", folder], stdin=archive.stdout, check=True)


def _section(command: Command, folder: Path) -> str:
    load, begin = os.getloadavg()[0], time.perf_counter()
    shown = "".join(Terminal(command, folder).run())
    seconds = time.perf_counter() - begin
    return f"{command.why}:\n\n```\n$ {command.line}\n{as_text(shown)}```\n{seconds:.1f} s, load {load:.1f}\n"


def as_text(shown: str) -> str:
    """The lines of a terminal's output, without escape sequences and text overwritten after a carriage return."""
    release = platform.release()
    lines = ESCAPES.sub("", shown).replace(release, release.partition("-")[0]).replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2].rstrip() for line in lines).strip("\n")
    return text + "\n" if text else ""


class Terminal:
    """A terminal in which a command runs. Raises subprocess.CalledProcessError if the command fails."""

    def __init__(self, command: Command, folder: Path):
        self.command = command
        path = f"{folder / '.venv/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        changed = {"PATH": path, "TERM": "dumb", "MLC_CACHE_DIR": "cache", "PIP_NO_CACHE_DIR": "1"}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        self.process, self.file = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored under a background job of a shell
            program, *arguments = shlex.split(command.line)
            os.execvpe(program, [program, *arguments], {**inherited, **changed})
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        settings = termios.tcgetattr(self.file)
        settings[3] |= termios.NOFLSH  # else output on Ctrl-C may be discarded
        termios.tcsetattr(self.file, termios.TCSANOW, settings)

    def run(self) -> Iterator[str]:
        """Yield the output piece by piece until the command has ended."""
        unread = ""
        for keys in self.command.keys:
            while keys.after not in unread:
                unread += (piece := self._read())
                yield piece
            unread = unread.partition(keys.after)[2]
            typed = time.monotonic() + keys.pause
            while select.select([self.file], [], [], max(0.0, typed - time.monotonic()))[0]:
                unread += (piece := self._read())
                yield piece
                if time.monotonic() > typed:
                    break
            os.write(self.file, keys.text.encode())
        while piece := self._read():
            yield piece
        if status := os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]):
            raise subprocess.CalledProcessError(status, self.command.line)

    def _read(self) -> str:
        """Read the next output; empty at the end."""
        try:
            return os.read(self.file, 1 << 16).decode(errors="replace")
        except OSError:  # Linux, if the other side is closed
            return ""


if __name__ == "__main__":
    main()
