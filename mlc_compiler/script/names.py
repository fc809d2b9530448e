"""Identifiers of variables and buffers in printed text, unique within their scope."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..ir.naming import unique_name

RESERVED = {"T", "R", "I", "cls", "Module", "metadata", "range", "float", "Tensor", "Object", *keyword.kwlist}


def identifier(name: str) -> str:
    """``name`` as a valid identifier: other characters are replaced by underscores."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII) or "v"
    return f"_{clean}" if clean[0].isdigit() else clean


class Names:
    """Assigns names. A name defined inside a scope is released at its end, so sibling loops may both use ``i``."""

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {}
        self._keep_alive: list[Any] = []
        self._visible: set[str] = set(RESERVED)

    def fresh(self, hint: str) -> str:
        """A name that is not visible yet: ``hint``, or with ``_1``, ``_2`` … appended."""
        name = unique_name(identifier(hint), self._visible)
        self._visible.add(name)
        return name

    def define(self, obj: Any) -> str:
        """Assign a name to ``obj``, valid to the end of the scope."""
        self._by_id[id(obj)] = name = self.fresh(obj.name)
        self._keep_alive.append(obj)
        return name

    def of(self, obj: Any) -> str:
        """The name of ``obj``; an object that was not defined is named at its first use."""
        return self._by_id.get(id(obj)) or self.define(obj)

    @contextmanager
    def scope(self) -> Iterator[None]:
        before = set(self._visible)
        yield
        self._visible = before
