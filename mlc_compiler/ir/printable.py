"""Base class of modules and functions: TVMScript printing and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mlc_errors import UnsupportedError


class Printable:
    """A module or function. ``repr`` is that of the dataclass, ``str`` the TVMScript text."""

    __slots__ = ()

    printer: ClassVar[Callable[[Any], str]] = repr  # set by ``script.printer``, which is a layer above

    def script(self) -> str:
        """The TVMScript text, which ``parse`` reads back as a structurally equal module or function."""
        return Printable.printer(self)

    def show(self, black_format: bool = False) -> None:
        """Print the TVMScript text. Raises UnsupportedError for ``black_format=True``: there is one format."""
        if black_format:
            raise UnsupportedError("show: black_format is True; the printer has one format", hint="leave it out")
        print(self.script())

    def __str__(self) -> str:
        return self.script()


def with_attr(attrs: Mapping[str, Any], key: str | Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Attributes with ``key`` set to ``value``, or with those of the mapping ``key`` set."""
    return {**attrs, **(key if isinstance(key, Mapping) else {key: value})}
