"""Measurement on other machines: the workers of a Dask cluster try candidates (package ``distributed``, an extra).

Each worker compiles a candidate and times it in turns with a reference, the first candidate that succeeds. Times are
multiples of the reference's smallest time, so that trials on different workers compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from mlc_errors import MLCError, ResourceError, UnsupportedError

from .measure import Limits, Measurer, Measuring, Ready, Trial
from .predict import is_timed, measurer_for
from .processes import TIME_LIMIT, Processes
from .record import workload_hash
from .space import Candidate
from .task import Task
from .worker import Arguments, Failed

SECONDS_TO_CONNECT = 30.0
SECONDS_TO_BEGIN = 600.0
"""Time that a trial may wait for a worker, which may have to run the unscheduled function first."""


class Workers:
    """A connection to the workers of a cluster. address: of its scheduler, as ``tcp://host:8786``.

    Raises ResourceError without the package ``distributed``, without an answer, and without workers.
    """

    def __init__(self, address: str):
        try:
            distributed = import_module("distributed")
        except ImportError:
            missing = "--workers needs the package distributed"
            raise ResourceError(missing, hint="pip install 'mlc-cli[workers]'") from None
        try:
            self.client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ResourceError(f"--workers: no scheduler answers at {address}: {error}") from None
        if not self.client.nthreads():
            self.close()
            raise ResourceError(f"--workers: {address} has no workers", hint=f"start some: dask worker {address}")

    def measurer(self, task: Task, processes: Processes, folder: Path, limits: Limits) -> RemoteMeasurer:
        """The measurer of a task. Raises UnsupportedError for a target whose code the workers cannot run."""
        if not self.client.submit(is_timed, task.target, pure=False).result(SECONDS_TO_BEGIN):
            raise UnsupportedError(f"--workers: their machine cannot run code for {task.target}")
        return RemoteMeasurer(self.client, task, limits)

    def close(self) -> None:
        self.client.close()


class RemoteMeasurer(Measuring):
    """Tries the candidates of a task on the workers of a cluster.

    A trial whose worker dies goes to another one; after several workers, it fails.
    """

    def __init__(self, client: Any, task: Task, limits: Limits):
        self.client, self.task, self.limits = client, task, limits
        self._reference: Candidate | None = None
        self._least = float("inf")
        self._ratios: dict[str, float] = {}

    def build(self, candidates: Sequence[Candidate]) -> list[Ready | Trial]:
        """Compile, check and time candidates on all workers in parallel; the first ones alone, for a reference."""
        made: list[Ready | Trial] = []
        left = list(candidates)
        while left and self._reference is None:
            first = left.pop(0)
            made += self._tried([first], first)
            self._reference = first if isinstance(made[-1], Ready) else None
        return made + (self._tried(left, self._reference) if self._reference is not None else [])

    def _tried(self, candidates: Sequence[Candidate], reference: Candidate) -> list[Ready | Trial]:
        pairs = [Pair(self.task, self.limits, reference, candidate) for candidate in candidates]
        futures = [self.client.submit(Pair.measure, pair, pure=False) for pair in pairs]
        return [self._made(candidate, future) for candidate, future in zip(candidates, futures, strict=True)]

    def _made(self, candidate: Candidate, future: Any) -> Ready | Trial:
        try:
            found = future.result(SECONDS_TO_BEGIN)
        except TimeoutError:
            future.cancel()
            return Trial(candidate, None, TIME_LIMIT)
        except MLCError:
            raise
        except Exception as error:  # the cluster's: its workers died
            return Trial(candidate, None, f"worker: {type(error).__name__}")
        if isinstance(found, Failed):
            return Trial(candidate, None, found.message)
        of_reference, seconds = found
        self._least = min(self._least, of_reference)
        self._ratios[candidate.key] = seconds / of_reference
        return Ready(candidate, Path(), Arguments(Path(), ()))

    def check(self, ready: Ready) -> None:
        """None: a worker has checked the candidate."""

    def time(self, libraries: Sequence[Ready], turns: int | None = None) -> list[float] | Failed:
        """The seconds of a call of each in its trial."""
        return [self._ratios[ready.candidate.key] * self._least for ready in libraries]


# -- on a worker ----------------------------------------------------------------------------------------------------


@dataclass
class _Station:
    """A measurer of a task in this process, with its files, and the candidates that it keeps compiled."""

    measurer: Measurer
    folder: TemporaryDirectory[str]
    ready: dict[str, Ready] = field(default_factory=dict)


_stations: dict[str, _Station] = {}
_one_at_a_time = Lock()


@dataclass(frozen=True)
class Pair:
    """A candidate of a task to be tried, and the reference to time it with."""

    task: Task
    limits: Limits
    reference: Candidate
    candidate: Candidate

    def measure(self) -> tuple[float, float] | Failed:
        """Seconds of a call of both, in turns, on this machine; Failed with the reason."""
        with _one_at_a_time:
            station = self._station()
            reference = station.ready.get(self.reference.key) or self._ready(station.measurer, self.reference)
            if isinstance(reference, Failed):
                return reference
            station.ready[self.reference.key] = reference
            other = (
                reference if self.candidate.key == self.reference.key else self._ready(station.measurer, self.candidate)
            )
            times = other if isinstance(other, Failed) else station.measurer.time([reference, other])
            return times if isinstance(times, Failed) else (times[0], times[1])

    def _station(self) -> _Station:
        key = f"{workload_hash(self.task.func)} {self.task.target} {sorted(self.task.sizes.items())}"
        if key not in _stations:
            folder = TemporaryDirectory(prefix="tune")
            measurer = measurer_for(self.task, Processes(1), Path(folder.name), self.limits)
            _stations[key] = _Station(measurer, folder)
        return _stations[key]

    @staticmethod
    def _ready(measurer: Measurer, candidate: Candidate) -> Ready | Failed:
        """A compiled and checked candidate."""
        (made,) = measurer.build([candidate])
        failed = made if isinstance(made, Trial) else measurer.check(made)
        if failed is not None:
            return Failed(failed.failure)
        assert isinstance(made, Ready)
        return made
