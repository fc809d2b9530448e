"""Write an output folder atomically: staging, journal, resume, lock.

Files are written in ``OUT/.mlc-partial`` and recorded in its journal once they are on the disk. When all are, the old
index is removed, the files are renamed to their final names, the new index last: a folder with an index has every file
that it names. A killed run leaves staging and journal; the next run of the same job continues.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlc_errors import FULL_DISK, MLCError, ResourceError
from mlc_files import md5_of, whole_file
from mlc_toolchain.output_layout import OutputFile, OutputFormat

STAGING = ".mlc-partial"
JOURNAL = "journal.jsonl"


@dataclass
class _OpenFile:
    """A file being filled."""

    descriptor: int
    remaining: int
    md5: hashlib._Hash = field(default_factory=lambda: hashlib.md5(usedforsecurity=False))


class OutputWriter:
    """Writes the files of one conversion, tensor by tensor in the order of the layout.

    Use as ``with open_output(folder, output, job) as writer``; tensors in ``done`` need not be written again.
    """

    def __init__(self, folder: Path, output: OutputFormat, job: str):
        self.folder = folder
        self.staging = folder / STAGING
        self.output = output
        self._file_of = {tensor.name: file for file in output.files for tensor in file.tensors}
        self._open: dict[str, _OpenFile] = {}
        self._journal = _Journal(self.staging, job)
        self.notes: dict[str, dict] = {}
        self._md5_sums: dict[str, str] = {}
        for entry in self._journal.entries:
            if self._still_there(entry):
                self._md5_sums[entry["file"]] = entry["md5"]
                self.notes |= entry["notes"]

    @property
    def done(self) -> set[str]:
        """Names of the tensors whose files are complete."""
        complete = [file for file in self.output.files if file.name in self._md5_sums]
        return {tensor.name for file in complete for tensor in file.tensors}

    def write(self, name: str, data: np.ndarray, note: Mapping[str, object] | None = None) -> None:
        """Append a tensor to its file. note: JSON values about it, which a resumed run finds in ``notes``."""
        file = self._file_of[name]
        if note is not None:
            self.notes[name] = dict(note)
        self._append(file, np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        if self._open[file.name].remaining == 0:
            self._complete(file)

    def finish(self) -> None:
        """Write the indexes and move all files to their final names."""
        for file in self.output.files:
            if file.nbytes == len(file.header):
                self._append(file, memoryview(b""))
                self._complete(file)
        for name, text in self.output.indexes(self._md5_sums).items():
            with whole_file(self.staging / name, durable=True) as index:
                index.write(text)
        sync_folder(self.staging)
        self._publish()

    def close(self) -> None:
        """Close the open files; staging and journal are kept for a later run."""
        for opened in self._open.values():
            os.close(opened.descriptor)
        self._open.clear()
        self._journal.close()

    def _append(self, file: OutputFile, data: memoryview) -> None:
        opened = self._open.get(file.name)
        if opened is None:
            descriptor = os.open(self.staging / file.name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            opened = self._open[file.name] = _OpenFile(descriptor, file.nbytes)
            self._put(opened, memoryview(file.header))
        self._put(opened, data)

    def _put(self, opened: _OpenFile, data: memoryview) -> None:
        _write_all(opened.descriptor, data)
        opened.md5.update(data)
        opened.remaining -= len(data)

    def _complete(self, file: OutputFile) -> None:
        opened = self._open[file.name]
        os.fsync(opened.descriptor)
        os.close(opened.descriptor)
        del self._open[file.name]
        self._md5_sums[file.name] = opened.md5.hexdigest()
        notes = {tensor.name: self.notes[tensor.name] for tensor in file.tensors if tensor.name in self.notes}
        self._journal.add({"file": file.name, "md5": self._md5_sums[file.name], "notes": notes})

    def _still_there(self, entry: dict) -> bool:
        """Whether a journaled file is intact, in staging or, if the run was killed while renaming, in the folder."""
        expected = next((file.nbytes for file in self.output.files if file.name == entry["file"]), None)
        for path in (self.staging / entry["file"], self.folder / entry["file"]):
            if path.is_file() and path.stat().st_size == expected:
                return md5_of(path) == entry["md5"]
        return False

    def _publish(self) -> None:
        self._remove(self._stale(lambda name: name.endswith(".json")))
        for file in self.output.files:
            if (self.staging / file.name).exists():
                os.replace(self.staging / file.name, self.folder / file.name)
        kept = {file.name for file in self.output.files}
        self._remove(self._stale(lambda name: name not in kept))
        for name in self.output.index_names:
            os.replace(self.staging / name, self.folder / name)
        sync_folder(self.folder)
        self._journal.close()
        shutil.rmtree(self.staging)

    def _stale(self, matches: Callable[[str], bool]) -> list[Path]:
        """Files of an earlier conversion whose names match."""
        return [p for p in self.folder.iterdir() if self.output.stale.fullmatch(p.name) and matches(p.name)]

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            os.unlink(path)
        sync_folder(self.folder)


class _Journal:
    """The journal, with one JSON object per line: first the job, then every completed file."""

    def __init__(self, staging: Path, job: str):
        self.path = staging / JOURNAL
        head, *entries = self._read() or [{}]
        if head != {"job": job}:
            shutil.rmtree(staging, ignore_errors=True)
            entries = []
        staging.mkdir(exist_ok=True)
        self.entries = entries
        lines = [json.dumps(entry) + "\n" for entry in ({"job": job}, *entries)]
        with whole_file(self.path, durable=True) as file:
            file.write("".join(lines).encode())
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def add(self, entry: dict) -> None:
        _write_all(self._descriptor, memoryview(json.dumps(entry).encode() + b"\n"))
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> list[dict]:
        """The entries before the first incomplete line, which a killed run may leave."""
        entries = []
        for line in self.path.read_bytes().split(b"\n")[:-1] if self.path.is_file() else []:
            try:
                entries.append(json.loads(line))
            except ValueError:
                break
        return entries


@contextmanager
def open_output(folder: Path, output: OutputFormat, job: str) -> Iterator[OutputWriter]:
    """A writer on ``folder``, created when missing and locked against other conversions.

    job: text that is equal for runs that would write the same bytes; a killed run of the same job is continued.
    Raises ResourceError when the folder is in use or the disk is full.
    """
    writer = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            writer = OutputWriter(folder, output, job)
            check_space(folder, sum(t.nbytes for t in output.tensors if t.name not in writer.done))
            try:
                yield writer
            finally:
                writer.close()
    except OSError as error:
        raise _explained(error, folder, writer) from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _take_lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ResourceError(
            "another conversion is writing to the folder", where=[str(folder)], hint="wait for it, or choose another -o"
        ) from None


def free_space(folder: Path) -> int:
    """Free bytes on the disk of a folder, which need not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(existing).free


def check_space(folder: Path, needed: int) -> None:
    """Raise ResourceError unless ``needed`` bytes are free on the folder's disk."""
    free = free_space(folder)
    if needed > free:
        raise ResourceError(
            f"not enough disk space: got {free} bytes; expected {needed} ({needed - free} missing)",
            where=[str(folder)],
            hint="choose a folder on another disk (-o, or MLC_CACHE_DIR for the cache), or free some with cache prune",
        )


def _explained(error: OSError, folder: Path, writer: OutputWriter | None) -> MLCError:
    where = [str(error.filename or folder)]
    if error.errno not in FULL_DISK:
        return MLCError(f"cannot write the output: {error.strerror}", where=where)
    done = writer.done if writer else set()
    needed = sum(tensor.nbytes for tensor in writer.output.tensors if tensor.name not in done) if writer else 0
    return ResourceError(
        f"the disk is full: {needed} bytes are still to be written",
        where=where,
        hint="make room and run the same command again; it continues where it stopped",
    )


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
