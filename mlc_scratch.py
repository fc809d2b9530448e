"""Folders for temporary files, of which those of killed processes are deleted by the next process that needs one.

A process holds a lock (``flock``) on each of its folders until it deletes it, or ends. systemd-tmpfiles respects the
same locks.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "mlc-process-"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of ``flock`` on file systems without locks."""
_folders: dict[tuple[int, str], Path] = {}


def new_folder(what: str) -> Path:
    """Create a folder in the system's temporary folder that is deleted when the process ends. Raises OSError.

    what: the beginning of its name.
    """
    return Path(tempfile.mkdtemp(prefix=f"{what}-", dir=_process_folder()))


@contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """Context manager: a ``new_folder`` that is deleted after it."""
    folder = new_folder(what)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_folder(parent: Path | None, prefix: str) -> Iterator[Path]:
    """Context manager: a new folder in ``parent``, by default the system's temporary folder, deleted after it.

    Other folders with this prefix are deleted unless a process uses them. Raises OSError.
    """
    folder, lock = _locked_folder(parent or Path(tempfile.gettempdir()), prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _process_folder() -> Path:
    """The folder that has this process's temporary folders; a forked process has another than its parent."""
    process, parent = os.getpid(), tempfile.gettempdir()
    found = _folders.get((process, parent))
    if found is None or not found.is_dir():
        found, _ = _locked_folder(Path(parent), PREFIX)
        _folders[process, parent] = found
        atexit.register(_delete, found, process)
    return found


def _delete(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """Create a folder and delete abandoned ones; returns it and the descriptor that has its lock."""
    for other in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            _delete_abandoned(other)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError, BlockingIOError):  # another process deletes it, which had no lock yet
            return folder, _lock(folder)


def _lock(folder: Path) -> int:
    """The descriptor of a new folder, with its lock if the file system has locks. Raises FileNotFoundError and
    BlockingIOError for a folder that another process deletes."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)
    except (FileNotFoundError, BlockingIOError):
        os.close(lock)
        raise
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(lock)
            raise
    return lock


def _delete_abandoned(folder: Path) -> None:
    """Delete a folder of this user whose lock is free. Raises OSError if it is not, or cannot be asked for."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
