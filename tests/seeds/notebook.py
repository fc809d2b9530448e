"""Runs a published document as a notebook: its cells in order, in one namespace, their sources known to Python.

A file ``cells/NAME.txt`` holds the document's code; a line ``# %% TITLE`` begins a cell. ``# %% TITLE: KIND`` says that
a cell is not run as printed: ``given`` stands for code or data that the document takes from elsewhere, ``printed`` is
what the document shows as a result, and any other word is the reason for which a cell is left out.
"""

from __future__ import annotations

import io
import linecache
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CELLS = Path(__file__).parent / "cells"
_MARK = "# %% "


@dataclass(frozen=True)
class Cell:
    """Some code with a title; ``kind`` is empty for code that is run as printed."""

    title: str
    kind: str
    text: str


@dataclass(frozen=True)
class Ran:
    """A notebook after its run: the output of each cell, the names after each cell, and the document's cells."""

    cells: Mapping[str, Cell]
    output: Mapping[str, str]
    after: Mapping[str, Mapping[str, Any]]

    def shown(self, title: str) -> str:
        """The text that the document shows under a title."""
        assert self.cells[title].kind == "printed"
        return self.cells[title].text

    def counts(self) -> dict[str, int]:
        """How many of the document's cells ran ("run"), and how many were left out, by reason."""
        kinds = Counter(cell.kind or "run" for cell in self.cells.values())
        return {kind: count for kind, count in kinds.items() if kind not in ("given", "printed")}


def run(
    name: str,
    given: Mapping[str, Any] | None = None,
    replaced: Mapping[str, str] | None = None,
    up_to: str | None = None,
) -> Ran:
    """Run ``cells/NAME.txt``.

    given: names defined before the first cell. replaced: texts replaced in cells. up_to: the last cell to run; all
    by default.
    """
    cells = _read(name, replaced or {})
    values = dict(given or {}) | {"__name__": "__main__", "_shell": _shell}
    output, after = {}, {}
    for cell in cells:
        if cell.kind in ("", "given"):
            output[cell.title] = _run(f"<{name}: {cell.title}>", cell.text, values)
            after[cell.title] = dict(values)
        if cell.title == up_to:
            break
    return Ran({cell.title: cell for cell in cells}, output, after)


def _run(file: str, text: str, values: dict[str, Any]) -> str:
    """Execute a cell as a notebook does, with its lines in ``linecache``; returns what it prints."""
    text = re.sub(r"^!(.*)$", r"_shell(f'\1')", text, flags=re.MULTILINE)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(text, file, "exec"), values)
    return printed.getvalue()


def _shell(command: str) -> None:
    """Run a line that begins with an exclamation mark, and print its output. Raises AssertionError if it fails."""
    program, *words = shlex.split(command)
    words.insert(0, sys.executable if program == "python" else program)
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout + done.stderr)


def _read(name: str, replaced: Mapping[str, str]) -> list[Cell]:
    text = (_CELLS / f"{name}.txt").read_text()
    for old, new in replaced.items():
        assert old in text, f"{name}: no {old!r}"
        text = text.replace(old, new)
    cells = []
    for part in text.split("\n" + _MARK)[1:]:
        head, _, body = part.partition("\n")
        title, _, kind = head.partition(": ")
        cells.append(Cell(title, kind, body.strip("\n") + "\n"))
    assert len({cell.title for cell in cells}) == len(cells), f"{name}: a title is used twice"
    return cells
