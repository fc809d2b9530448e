"""Writing a folder's small files: each appears whole or not at all, the last one names the others."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlc_errors import MLCError, ResourceError


def write_files(folder: Path, files: Mapping[str, bytes], *, stale: Sequence[str] = ()) -> None:
    """Write `files` into `folder` (made when missing), in order; then remove those of `stale` that are not among them.

    Every file is written under a temporary name, flushed to the disk and renamed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write(folder / name, data)
        for name in set(stale) - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as e:
        kind = ResourceError if e.errno in (errno.ENOSPC, errno.EDQUOT) else MLCError
        raise kind(f"cannot write to the output folder: {e.strerror}", where=[str(e.filename or folder)]) from None


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
