"""Base class of nodes that print as TVMScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Printable:
    """A module or function. ``repr`` is that of the dataclass, ``str`` the TVMScript text."""

    __slots__ = ()

    printer: ClassVar[Callable[[Any], str]] = repr  # set by ``script.printer``, which is a layer above

    def script(self) -> str:
        """The TVMScript text, which ``parse`` reads back as a structurally equal module or function."""
        return Printable.printer(self)

    def show(self) -> None:
        """Print the TVMScript text."""
        print(self.script())

    def __str__(self) -> str:
        return self.script()
