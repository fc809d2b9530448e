"""A text for measuring accuracy that every Python installation has: docstrings, in the order of modules and lines."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SHORTEST = 200  # characters; shorter docstrings say little beside their markup
SKIPPED_FOLDERS = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages", "pydoc_data"})


def held_out_text() -> str:
    """Docstrings of the standard library, which calibration does not read."""
    return "\n\n".join(docstrings(Path(sysconfig.get_path("stdlib"))))


def docstrings(folder: Path) -> Iterator[str]:
    """Of modules, classes and functions below a folder."""
    for path in sorted(folder.rglob("*.py")):
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts):
            yield from _of_file(path)


def _of_file(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # files with deliberate errors
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= SHORTEST:
                yield text
