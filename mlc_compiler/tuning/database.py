"""Databases of measured schedules: a folder with two files of JSON lines, in MetaSchedule's format.

``database_workload.json`` has a line ``[hash, function]`` for each workload, the function as TVMScript;
``database_tuning_record.json`` has a line
``[workload, [trace, [seconds], target, arguments, {compiler, failure, predicted}]]`` for each trial, where
``workload`` is the line number of the workload, from 0.
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlc_errors import MLCError, ResourceError

from ..script import script
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import ScheduleError, Trace
from .record import Record, workload_hash, workload_of

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


class Database:
    """The records in a folder, by workload. ``Database()`` is in memory only.

    A folder is read by the constructor; the first ``add`` creates it if missing, and locks it for the
    object, until ``close``: one process writes at a time. Every record is on disk when ``add`` returns; an incomplete
    line, which a killed process leaves at the end of a file, is dropped. Raises MLCError for a file that contains
    anything else.
    """

    def __init__(self, folder: str | Path | None = None):
        self.folder = None if folder is None else Path(folder)
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._records: dict[str, dict[str, Record]] = {}
        self._lock: weakref.finalize[Any, Database] | None = None
        if self.folder is not None:
            self._read(self.folder)

    def __len__(self) -> int:
        """The number of distinct schedules."""
        return sum(map(len, self._records.values()))

    def records(self, func: PrimFunc, target: Target) -> list[Record]:
        """The records of a function's workload on a target, failures included; the latest one of equal schedules."""
        found = self._records.get(workload_hash(func), {})
        return [record for record in found.values() if record.is_for(target)]

    def best(self, func: PrimFunc, target: Target) -> Record | None:
        """The fastest record of the function's workload on a target, or None.

        Without measured records, it is the one with the smallest predicted time.
        """
        timed = [r for r in self.records(func, target) if r.seconds is not None]
        return min(timed, key=lambda r: (r.predicted, r.seconds or 0.0), default=None)

    def add(self, func: PrimFunc, record: Record) -> None:
        """Add a trial of a function; it replaces an earlier trial of the same schedule, a prediction no measurement.

        Raises ResourceError while another process writes to the folder, MLCError when writing fails.
        """
        self._reserve()
        self._add(workload_hash(func), script(workload_of(func)), record)

    def merge(self, other: Database) -> int:
        """Add the records of another database; returns how many of them are new. Errors are those of ``add``."""
        self._reserve()
        new = 0
        for key, records in other._records.items():
            for record in records.values():
                if record.key not in self._records.get(key, {}):
                    self._add(key, other._texts[other._numbers[key]], record)
                    new += 1
        return new

    def close(self) -> None:
        """Release the lock, so that other processes can write to the folder."""
        if self._lock is not None:
            self._lock()
            self._lock = None

    # -- writing ------------------------------------------------------------------------------------------------

    def _add(self, key: str, text: str, record: Record) -> None:
        if key not in self._numbers:
            self._append(WORKLOADS, [key, text])
            self._remember_workload(key, text)
        self._append(RECORDS, [self._numbers[key], _to_json(record)])
        self._remember(key, record)

    def _remember(self, key: str, record: Record) -> None:
        known = self._records.setdefault(key, {})
        if not record.predicted or known.get(record.key, record).predicted:
            known[record.key] = record

    def _remember_workload(self, key: str, text: str) -> None:
        self._numbers.setdefault(key, len(self._texts))
        self._texts.append(text)

    def _reserve(self) -> None:
        """Lock the folder, and truncate incomplete lines."""
        if self.folder is None or self._lock is not None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / WORKLOADS, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise MLCError(f"cannot write the database: {error.strerror}", where=[str(self.folder)]) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ResourceError(
                "the database is in use by another process", where=[str(self.folder)], hint="name another folder"
            ) from None
        self._lock = weakref.finalize(self, os.close, lock)
        for name in (WORKLOADS, RECORDS):
            _drop_incomplete(self.folder / name)

    def _append(self, name: str, line: Any) -> None:
        if self.folder is None:
            return
        try:
            with open(self.folder / name, "ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise MLCError(f"cannot write the database: {error.strerror}", where=[str(self.folder / name)]) from None

    # -- reading ------------------------------------------------------------------------------------------------

    def _read(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise MLCError("the database is a file; expected a folder", where=[str(folder)])
        for place, line in _lines(folder / WORKLOADS):
            key, text = _parsed(place, line, 2)
            self._remember_workload(str(key), str(text))
        keys = {number: key for key, number in self._numbers.items()}
        for place, line in _lines(folder / RECORDS):
            number, fields = _parsed(place, line, 2)
            if number not in keys:
                raise MLCError(f"a record of workload {number}; there are {len(keys)}", where=[place])
            self._remember(keys[number], _from_json(place, fields))


def _drop_incomplete(path: Path) -> None:
    if path.exists():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The complete lines of a file with their locations; none when the file is missing."""
    if not path.exists():
        return
    *complete, _ = path.read_bytes().split(b"\n")
    for number, line in enumerate(complete, 1):
        yield f"{path}:{number}", line


def _parsed(place: str, line: bytes, count: int) -> Sequence[Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, list) or len(fields) != count:
        raise MLCError(f"the database has a line that is no list of {count} fields", where=[place])
    return fields


def _to_json(record: Record) -> list[Any]:
    seconds = [] if record.seconds is None else [record.seconds]
    arguments = [["TENSOR", dtype, list(shape)] for dtype, shape in record.arguments]
    about = {"compiler": record.compiler, "failure": record.failure, "predicted": record.predicted}
    return [json.loads(record.trace.as_json()), seconds, dict(record.target), arguments, about]


def _from_json(place: str, fields: Any) -> Record:
    try:
        trace, seconds, target, arguments, about = fields
        return Record(
            Trace.from_json(json.dumps(trace)),
            float(seconds[0]) if seconds else None,
            {str(k): v for k, v in target.items()},
            tuple((str(dtype), tuple(map(int, shape))) for _, dtype, shape in arguments),
            str(about["failure"]),
            bool(about.get("predicted", False)),
            str(about["compiler"]),
        )
    except (ScheduleError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise MLCError(f"the database has a line that is no record: {error}", where=[place]) from None
