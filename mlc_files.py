"""Atomic file writes, into a temporary file that is then renamed, bounded reads, and checksums of libraries."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mlc_errors import FULL_DISK, MLCError, ResourceError

SUM_KEY = "library_sha256"
"""The entry of a library's metadata with the SHA-256 sum of its file, in which these 64 digits are zeros."""
NO_SUM = "0" * 64
_SUM_ENTRY = f'"{SUM_KEY}": "'.encode()


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
    _check_regular(path)
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise MLCError(f"the file is larger than {limit >> 20} MiB", where=[str(path)])
    return data


def md5_of(path: Path) -> str:
    """The MD5 sum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _check_regular(path: Path) -> None:
    """Raise MLCError for a device or a pipe, of which a read might not end."""
    if path.exists() and not path.is_file():
        raise MLCError(f"{path} is not a regular file")


def check_writable(path: Path, what: str) -> None:
    """Raise MLCError, which names ``what`` is to be written, unless ``whole_file`` can begin; nothing is changed."""
    try:
        with suppress(_Unchanged), whole_file(path):
            raise _Unchanged
    except OSError as error:
        raise cannot_write(what, path, error) from None


class _Unchanged(Exception):
    """Ends the writing of a file without a change."""


def copy_library(source: Path, path: Path) -> None:
    """Copy a shared library to ``path``, executable by those who may read it. Raises MLCError as ``check_writable``."""
    try:
        with open(source, "rb") as library, whole_file(path) as copy:
            shutil.copyfileobj(library, copy)
            mode = os.fstat(copy.fileno()).st_mode
            os.chmod(copy.fileno(), mode | (mode & 0o444) >> 2)
    except OSError as error:
        raise cannot_write("the library", path, error) from None


def cannot_write(what: str, path: Path, error: OSError) -> MLCError:
    """The error for a file that could not be written: a ResourceError where the disk is full."""
    kind = ResourceError if error.errno in FULL_DISK else MLCError
    return kind(f"cannot write {what}: {error.strerror or error}", where=[str(path)])


def seal_library(path: Path) -> None:
    """Write the file's sum into its metadata, where these have the entry ``SUM_KEY``."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as image:
        at = _sum_position(image)
        if at:
            image[at : at + len(NO_SUM)] = _sum(image, at)


def check_library(path: Path) -> None:
    """Raise MLCError unless the file has the sum in its metadata; zeros, of a file that is not sealed, pass."""
    _check_regular(path)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        at = _sum_position(image)
        if not at or image[at : at + len(NO_SUM)] not in (NO_SUM.encode(), _sum(image, at)):
            hint = "copy it again, or compile the model again"
            raise MLCError("the library is damaged: it does not have its checksum", where=[str(path)], hint=hint)


def _sum_position(image: mmap.mmap) -> int | None:
    found = image.find(_SUM_ENTRY)
    return found + len(_SUM_ENTRY) if found >= 0 else None


def _sum(image: mmap.mmap, at: int) -> bytes:
    """The sum of the file with zeros at ``at``."""
    sha256 = hashlib.sha256()
    with memoryview(image) as view:
        for part in (view[:at], NO_SUM.encode(), view[at + len(NO_SUM) :]):
            sha256.update(part)
    return sha256.hexdigest().encode()
