"""Measurement of candidates: compiled in child processes, checked against the unscheduled function, timed in turns.

Kernels for a GPU are timed with their launch, on data that is on the GPU.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mlc_errors import MLCError, UnsupportedError

from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule.layout import LAYOUTS
from .processes import TIME_LIMIT, Processes
from .record import MAIN
from .space import Candidate
from .task import Task
from .worker import Arguments, Build, Failed, Job, Run, Turns

SECONDS_OF_REFERENCE = 600.0
TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}
"""Maximum error of a result relative to its largest element; sums may be reassociated."""
OTHER_TOLERANCE = 0.2  # for 8-bit floats


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds for compiling and running a candidate; number of alternations with the best one."""

    build: float = 30.0
    run: float = 10.0
    turns: int = 3


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried. seconds: time of one call; None when it failed, with the reason in ``failure``."""

    candidate: Candidate
    seconds: float | None
    failure: str = ""

    @property
    def was_cut_off(self) -> bool:
        """Whether a time limit ended the trial, which may just mean a busy machine."""
        return self.failure.endswith(TIME_LIMIT)


@dataclass(frozen=True)
class Ready:
    """A compiled candidate: its library and its arguments."""

    candidate: Candidate
    library: Path
    arguments: Arguments


def check_searched(target: Target) -> None:
    """Raise UnsupportedError for a target whose candidates can be neither timed nor predicted."""
    if target.kind not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"tuning: candidates for {target} can be neither timed nor predicted", hint="use --device cpu or cuda"
        )


class Measuring(ABC):
    """Base class of what finds the times of a task's candidates. predicts: whether its times are predictions."""

    predicts: ClassVar[bool] = False

    @abstractmethod
    def build(self, candidates: Sequence[Candidate]) -> list[Ready | Trial]:
        """Compile candidates in parallel; returns a failed Trial for each that does not compile."""

    @abstractmethod
    def check(self, ready: Ready) -> Trial | None:
        """Run a candidate once; returns a failed Trial if it crashes, hangs or gives a wrong result, else None."""

    @abstractmethod
    def time(self, libraries: Sequence[Ready], turns: int | None = None) -> list[float] | Failed:
        """The seconds of a call of each, measured in turns."""


class Measurer(Measuring):
    """Builds, checks and times the candidates of one task on this machine; ``folder`` holds the files.

    Raises UnsupportedError for a target that cannot be searched, and MLCError when the unscheduled function does not
    compile or run on this machine.
    """

    def __init__(self, task: Task, processes: Processes, folder: Path, limits: Limits):
        self.task, self.processes, self.folder, self.limits = task, processes, folder, limits
        check_searched(task.target)
        self._file = folder / "arguments"
        self._file.write_bytes(pickle.dumps(task.arguments()))
        self._count = 0
        self._expected = self._reference()

    def _reference(self) -> list[np.ndarray]:
        target = self.task.target if self.task.target.kind == "cpu" else Target("cpu")
        job = Build(self.task.workload, target.export(), self.folder / "reference.so")
        (built,) = self.processes.build([job], SECONDS_OF_REFERENCE)
        runner, plain = self.processes.runner, Arguments(self._file, self.task.written)
        found = built or runner.do(Run(job.output, plain), SECONDS_OF_REFERENCE)
        if isinstance(found, Failed):
            raise MLCError(f"tuning {self.task.name}: the function without a schedule failed: {found.message}")
        return found

    def build(self, candidates: Sequence[Candidate]) -> list[Ready | Trial]:
        paths = [self.folder / f"{self._count + i}.so" for i in range(len(candidates))]
        self._count += len(candidates)
        jobs = [self._job(candidate, path) for candidate, path in zip(candidates, paths, strict=True)]
        replies = self.processes.build(jobs, self.limits.build)
        return [self._built(*each) for each in zip(candidates, paths, replies, strict=True)]

    def _job(self, candidate: Candidate, library: Path) -> Job:
        return Build(candidate.func, self.task.target.export(), library)

    def _built(self, candidate: Candidate, library: Path, reply: Any) -> Ready | Trial:
        if isinstance(reply, Failed):
            return Trial(candidate, None, f"compilation: {reply.message}")
        return Ready(candidate, library, Arguments(self._file, self.task.written, layouts_of(candidate.func)))

    def check(self, ready: Ready) -> Trial | None:
        failure = self._failure(ready)
        return Trial(ready.candidate, None, failure) if failure else None

    def _failure(self, ready: Ready, function: str = MAIN) -> str:
        """Why a run of a function of a candidate's library fails, or how its results differ; empty if they agree."""
        found = self.processes.runner.do(Run(ready.library, ready.arguments, function), self.limits.run)
        return found.message if isinstance(found, Failed) else _difference(found, self._expected)

    def time(self, libraries: Sequence[Ready], turns: int | None = None) -> list[float] | Failed:
        """Time libraries in turns: the minimum seconds of a call of each; see ``Turns``."""
        job = Turns(tuple((r.library, r.arguments) for r in libraries), turns or self.limits.turns)
        reply: list[float] | Failed = self.processes.runner.do(job, self.limits.run * (1 + job.turns))
        return reply


def layouts_of(func: PrimFunc) -> dict[int, str]:
    """The layouts of a scheduled function's parameters, by parameter position."""
    positions = {id(p): i for i, p in enumerate(func.params)}
    layouts = func.attrs.get(LAYOUTS, {})
    return {positions[id(func.buffers[int(i)])]: layout.text for i, layout in layouts.items()}


def _difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """Describe the difference of results; empty when they agree."""
    for number, (got, want) in enumerate(zip(found, expected, strict=True)):
        error = _error(got, want)
        if not error <= _tolerance(want.dtype):
            return f"wrong result {number}: its error is {error:.1e} of its largest element"
    return ""


def _tolerance(dtype: np.dtype) -> float:
    return 0.0 if dtype.kind in "iub" else TOLERANCES.get(dtype.name, OTHER_TOLERANCE)


def _error(got: np.ndarray, want: np.ndarray) -> float:
    """The maximum difference relative to the largest element; infinite where only one value is not finite."""
    if want.dtype.kind in "iub":
        return 0.0 if np.array_equal(got, want) else np.inf
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    return float(np.max(np.abs(a - b), initial=0.0) / max(float(np.max(np.abs(b), initial=0.0)), 1e-30))
