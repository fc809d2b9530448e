"""Text assembled line by line with indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """Indented output lines of a printer."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def add(self, text: str) -> None:
        self._lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add ``header`` and indent the lines added inside; ``pass`` is added when there are none."""
        self.add(header)
        start = len(self._lines)
        self._depth += 1
        yield
        if len(self._lines) == start:
            self.add("pass")
        self._depth -= 1

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"
