"""Atomic file writes, into a temporary file that is then renamed, and bounded reads."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mlc_errors import MLCError


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A binary file that replaces ``path`` when the block ends; when the block raises, ``path`` is unchanged.

    It is written under a temporary name in the same folder and renamed; a symbolic link stays, and the file that it
    leads to is replaced. durable: fsync it before the rename. Raises OSError, also for what is no regular file: a
    device, a pipe.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes. Raises MLCError for others, OSError as ``open``."""
    if path.exists() and not path.is_file():
        raise MLCError(f"{path} is not a regular file")
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise MLCError(f"the file is larger than {limit >> 20} MiB", where=[str(path)])
    return data


def check_writable(path: Path, what: str) -> None:
    """Raise MLCError, which names ``what`` is to be written, unless ``whole_file`` can begin; nothing is changed."""
    try:
        with suppress(_Unchanged), whole_file(path):
            raise _Unchanged
    except OSError as e:
        raise MLCError(f"cannot write {what}: {e.strerror}", where=[str(path)]) from None


class _Unchanged(Exception):
    """Ends the writing of a file without a change."""


def copy_library(source: Path, path: Path) -> None:
    """Copy a shared library to ``path``, executable by all. Raises MLCError when it cannot be written."""
    try:
        with open(source, "rb") as library, whole_file(path) as copy:
            shutil.copyfileobj(library, copy)
            os.chmod(copy.fileno(), 0o755)
    except OSError as e:
        raise MLCError(f"cannot write the library: {e.strerror}", where=[str(path)]) from None
