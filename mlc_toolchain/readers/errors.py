"""The error for files of a checkpoint, and how what they hold is shown."""

from __future__ import annotations

from mlc_errors import MLCError


class CheckpointError(MLCError):
    """A checkpoint file that is damaged, incomplete or not what its name says."""

    code = "MLC6"


def shown(value: object, limit: int = 120) -> str:
    """A value from an untrusted file, short and printable."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
