"""Exceptions that the command line reports to the user: message, location and hint."""

from __future__ import annotations

import errno
from collections.abc import Sequence

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of files for which there is no room: on the disk, in the user's quota, under ``ulimit -f``."""


class MLCError(Exception):
    """A failure that a user can act on.

    message: ``what failed: got X; expected Y``. where: lines that name the file, tensor or pass. hint: how to fix it.
    The command line prints the three and exits with ``exit_code``; a traceback appears only under ``MLC_DEBUG=1``.
    code: stable; `mlc_cli explain CODE` says what it means.
    """

    code = "MLC1"
    exit_code = 1

    def __init__(self, message: str, *, where: Sequence[str] = (), hint: str | None = None):
        super().__init__(message)
        self.message = message
        self.where = tuple(where)
        self.hint = hint

    def to_dict(self) -> dict[str, object]:
        """Its parts by name, as JSON types."""
        names = ("code", "message", "where", "hint", "exit_code")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        lines = [self.message, *(f"  in   {w}" for w in self.where)]
        if self.hint:
            lines.append(f"  hint {self.hint}")
        return "\n".join(lines)


class UsageError(MLCError):
    """An invalid flag, argument or value."""

    code = "MLC2"
    exit_code = 2


class UnsupportedError(MLCError):
    """A model, format or target that is recognised but not supported."""

    code = "MLC3"
    exit_code = 3


class ResourceError(MLCError):
    """Not enough memory or disk space, or a device that is not available."""

    code = "MLC4"
    exit_code = 4


class InternalError(MLCError):
    """A bug in the compiler: the input is valid, and the user cannot fix the failure."""

    code = "MLC5"
    HINT = "please report this, with the model's configuration and the command"

    def __init__(self, message: str, *, where: Sequence[str] = ()):
        super().__init__(f"internal compiler error: {message}", where=where, hint=self.HINT)
