"""Errors of the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_errors import MLCError


class InterpreterError(MLCError):
    """Undefined behaviour (an out-of-bounds access, an uninitialized read) or mismatched arguments."""


def outside(buffer: str, shape: Sequence[int], *index: int) -> None:
    """Raise InterpreterError for an out-of-bounds access."""
    raise InterpreterError(f"index {_show(index)} of buffer {buffer!r} is outside its shape {_show(shape)}")


def unwritten(buffer: str, *index: int) -> None:
    """Raise InterpreterError for a read of uninitialized memory."""
    raise InterpreterError(f"buffer {buffer!r} is read at {_show(index)} before anything is written there")


def _show(items: Sequence[int]) -> str:
    return f"[{', '.join(map(str, items))}]"
