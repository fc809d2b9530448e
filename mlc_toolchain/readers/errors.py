"""The error for files of a checkpoint, and the formatting of untrusted values in messages."""

from __future__ import annotations

from mlc_errors import MLCError


class CheckpointError(MLCError):
    """A checkpoint file is damaged, incomplete or of another format than its name says."""

    code = "MLC6"


def shown(value: object, limit: int = 120) -> str:
    """A value from an untrusted file, short and printable."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
