"""What can go wrong while IR is interpreted."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_errors import MLCError


class InterpreterError(MLCError):
    """IR that has no meaning for these inputs: an access outside a buffer, a value read before it is written."""


def outside(buffer: str, shape: Sequence[int], *index: int) -> None:
    """Raises the error of an access outside a buffer."""
    raise InterpreterError(f"index {_show(index)} of buffer {buffer!r} is outside its shape {_show(shape)}")


def unwritten(buffer: str, *index: int) -> None:
    """Raises the error of reading memory that nothing wrote."""
    raise InterpreterError(f"buffer {buffer!r} is read at {_show(index)} before anything is written there")


def _show(items: Sequence[int]) -> str:
    return f"[{', '.join(map(str, items))}]"
