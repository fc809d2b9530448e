"""Unique names."""

from __future__ import annotations

from collections.abc import Container


def unique_name(base: str, taken: Container[str], separator: str = "_") -> str:
    """``base``, or the first of ``base_1``, ``base_2`` … that is not taken."""
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}{separator}{number}"
    return name
