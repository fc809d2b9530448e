"""Round-trip check: the printed text parses to a structurally equal tree, which prints the same text."""

from __future__ import annotations

from typing import Any

from mlc_compiler.ir.structural import first_difference
from mlc_compiler.script import parse, to_text


def check_round_trip(node: Any) -> str:
    """Asserts ``parse(script(node)) == node``; returns the text."""
    printed = to_text(node)
    again = parse(printed.text, printed.constants)
    assert first_difference(again, node) is None, printed.text
    assert to_text(again).text == printed.text
    return printed.text
