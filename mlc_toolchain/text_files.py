"""Write small files into a folder, each atomically."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlc_errors import MLCError, ResourceError
from mlc_files import whole_file


def write_files(folder: Path, files: Mapping[str, bytes], *, stale: Sequence[str] = ()) -> None:
    """Write `files` into `folder` (made when missing), in order; then remove those of `stale` that are not among them.

    Raises ResourceError when the disk is full, MLCError for other failures.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            with whole_file(folder / name, durable=True) as file:
                file.write(data)
        for name in set(stale) - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as e:
        kind = ResourceError if e.errno in (errno.ENOSPC, errno.EDQUOT) else MLCError
        raise kind(f"cannot write to the output folder: {e.strerror}", where=[str(e.filename or folder)]) from None
