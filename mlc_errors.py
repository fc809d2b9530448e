"""Exceptions that the command line reports to the user: message, location and hint."""

from __future__ import annotations

import errno
import os
import resource
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


STEP_ADDRESSES = 64 << 20
"""Address space in bytes that a step of a compilation needs; a Python that gets no memory at all may hang or crash."""


def address_limit() -> int | None:
    """Bytes of addresses that this process may have, by ``ulimit -v``; None without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def address_space() -> tuple[int, int] | None:
    """Bytes of addresses that this process may have, by ``ulimit -v``, and has; None without a limit."""
    limit = address_limit()
    if limit is None:
        return None
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
    except OSError:  # no Linux
        pages = 0
    return limit, pages * os.sysconf("SC_PAGE_SIZE")


def check_address_space(what: str, needed: int) -> None:
    """Raise ResourceError where fewer than ``needed`` bytes of addresses are left.

    Libraries in C++ and Rust end the process when they get no memory, so that it has to be known before they run.
    """
    space = address_space()
    if space is not None and space[0] - space[1] < needed:
        left = max(0, space[0] - space[1]) >> 20
        raise ResourceError(
            f"{what} takes about {needed >> 20} MB of addresses; {left} MB are left", hint=_address_hint(space[0])
        )


def out_of_memory(reason: str | None = None) -> ResourceError:
    """The error of a process without memory, with its limit if it has one. reason: in the words of the system."""
    limit = address_limit()
    hint = "close other programs, or take a smaller model or context" if limit is None else _address_hint(limit)
    return ResourceError("out of memory", where=[reason] if reason else [], hint=hint)


def _address_hint(limit: int) -> str:
    return f"this process may have {limit >> 20} MB of addresses (ulimit -v): raise that limit"
