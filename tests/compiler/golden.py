"""Golden files: a module as text, the line ``# ----``, and the expected output module."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.script import parse, script

SEPARATOR = "\n# ----\n"


def source_of(case: Path) -> IRModule:
    """The input module of a golden file."""
    return parse(case.read_text().partition(SEPARATOR)[0])


def check_golden(case: Path, make: Callable[[IRModule], IRModule], update: bool) -> None:
    """Assert that ``make`` turns the input module into the module after the line, and that its text parses back to
    it.

    update: write the result to the file instead if it differs or if the file has no expected output.
    """
    source, _, expected = case.read_text().partition(SEPARATOR)
    result = make(parse(source))
    if update and (not expected.strip() or first_difference(result, parse(expected)) is not None):
        expected = "\n" + script(result)
        case.write_text(source.rstrip() + "\n" + SEPARATOR + expected)
    wanted = parse(expected)
    assert first_difference(result, wanted) is None, _explain(result, wanted)
    reread = parse(script(result))
    assert first_difference(result, reread) is None, _explain(result, reread)


def _explain(result: IRModule, expected: IRModule) -> str:
    texts = (script(expected).splitlines(), script(result).splitlines())
    lines = difflib.unified_diff(*texts, "expected", "result", lineterm="")
    return "\n".join([f"first difference at {first_difference(result, expected)}", *lines])
