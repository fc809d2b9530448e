"""Parser of the operands of a PTX instruction."""

from __future__ import annotations

import re
from collections.abc import Callable

from mlc_compiler.sim.program import Address, Operand, Pair, Sink, Vector

Atom = Callable[[str], Operand]


def split_list(text: str) -> list[str]:
    """Split ``text`` at commas that are not within brackets."""
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*items, last] if last else items


def parse_operands(text: str, atom: Atom) -> tuple[Operand, ...]:
    """Parse the operands of an instruction; ``atom`` parses names and numbers."""
    return tuple(_operand(item, atom) for item in split_list(text))


def _operand(text: str, atom: Atom) -> Operand:
    if text == "_":
        return Sink()
    if text[0] == "[":
        return _address(text[1 : text.rindex("]")], atom)
    if text[0] in "{(":
        return Vector(parse_operands(text[1:-1], atom))
    if "|" in text:
        first, second = text.split("|")
        return Pair(_operand(first.strip(), atom), _operand(second.strip(), atom))
    return atom(text)


def _address(text: str, atom: Atom) -> Address:
    base, *rest = split_list(text)
    coordinates = rest[0] if rest else ""
    match = re.fullmatch(r"(.+?)\s*\+\s*(-?\w+)", base)
    items = parse_operands(coordinates[1:-1], atom) if coordinates.startswith("{") else ()
    if match is None:
        return Address(atom(base), 0, items)
    return Address(atom(match.group(1)), int(match.group(2), 0), items)
