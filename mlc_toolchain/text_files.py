"""Write small files atomically, and read untrusted text files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlc_errors import MLCError
from mlc_files import cannot_write, read_limited, whole_file

TEXT_LIMIT_BYTES = 64 << 20


def read_text(path: Path) -> str:
    """Read a UTF-8 text file. Raises MLCError unless it is a regular file of at most 64 MiB, OSError if unreadable."""
    data = read_limited(path, TEXT_LIMIT_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MLCError(f"{path} is not UTF-8 text: byte 0x{data[error.start]:02x} at position {error.start}") from None


def write_files(folder: Path, files: Mapping[str, bytes], *, stale: Sequence[str] = ()) -> None:
    """Write `files` into `folder` (created if missing) in order; then remove files in `stale` that were not written.

    Raises ResourceError when the disk is full, MLCError for other failures.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            with whole_file(folder / name, durable=True) as file:
                file.write(data)
        for name in set(stale) - set(files):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write("to the output folder", Path(error.filename or folder), error) from None
