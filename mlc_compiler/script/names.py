"""Identifiers for variables and buffers, unique among those visible at each point of the printed text."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..ir.naming import unique_name

RESERVED = {"T", "R", "I", "cls", "Module", "metadata", "range", "float", "Tensor", "Object", *keyword.kwlist}


def identifier(name: str) -> str:
    """The nearest valid identifier: other characters become underscores."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII) or "v"
    return f"_{clean}" if clean[0].isdigit() else clean


class Names:
    """Hands out names; a name given inside a scope is free again after it, so that sibling loops may both use ``i``."""

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {}
        self._keep_alive: list[Any] = []
        self._visible: set[str] = set(RESERVED)

    def fresh(self, hint: str) -> str:
        """A name that nothing visible has: ``hint``, or with ``_1``, ``_2`` … appended."""
        name = unique_name(identifier(hint), self._visible)
        self._visible.add(name)
        return name

    def define(self, obj: Any) -> str:
        """The name of ``obj`` from here to the end of the scope."""
        self._by_id[id(obj)] = name = self.fresh(obj.name)
        self._keep_alive.append(obj)
        return name

    def of(self, obj: Any) -> str:
        """The name of ``obj``; an object that nothing defined is named at its first use."""
        return self._by_id.get(id(obj)) or self.define(obj)

    def knows(self, obj: Any) -> bool:
        return id(obj) in self._by_id

    @contextmanager
    def scope(self) -> Iterator[None]:
        before = set(self._visible)
        yield
        self._visible = before
