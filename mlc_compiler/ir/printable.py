"""What prints as TVMScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Printable:
    """A module or function. ``repr`` shows the nodes, ``str`` the TVMScript text."""

    __slots__ = ()

    printer: ClassVar[Callable[[Any], str]] = repr  # replaced by that of TVMScript, a layer above

    def script(self) -> str:
        """The TVMScript text, which ``parse`` reads back to an equal module or function."""
        return Printable.printer(self)

    def show(self) -> None:
        """Print the TVMScript text."""
        print(self.script())

    def __str__(self) -> str:
        return self.script()
