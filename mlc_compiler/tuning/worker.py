"""The child process that compiles and runs candidates: ``main`` reads jobs from standard input and writes replies.

A candidate may crash the process or never end; the parent (``processes.py``) then kills it and starts another. It dies
with its parent.
"""

from __future__ import annotations

import ctypes
import math
import pickle
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError
from mlc_runtime.library import Library

from ..codegen import workers
from ..codegen.llvm_worker import receive, send
from ..driver import build_library
from ..ir.module import IRModule
from ..optimization import Optimization
from ..pipeline import entries, run_passes
from ..target import Target
from ..tir.index_map import IndexMap
from ..tir.nodes import PrimFunc
from .record import MAIN

PR_SET_PDEATHSIG = 1
SECONDS_OF_A_TURN = 0.01
HOPELESS = 3.0  # times as long as the best one


@dataclass(frozen=True)
class Arguments:
    """Arguments of a workload, pickled in a file as a list; ``written``: positions of the results.

    layouts: position -> index map, as text, of arguments that the candidate reads in another layout.
    """

    file: Path
    written: tuple[int, ...]
    layouts: Mapping[int, str] = field(default_factory=dict)

    def load(self) -> list[Any]:
        found = pickle.loads(self.file.read_bytes())
        return [IndexMap.parse(self.layouts[i]).pack(a) if i in self.layouts else a for i, a in enumerate(found)]


class Job(ABC):
    """Something that the child process does; the result is sent back."""

    @abstractmethod
    def run(self) -> Any:
        """The reply. An MLCError is sent back as a Failed."""


@dataclass(frozen=True)
class Failed:
    """A job that failed, and how; the process goes on."""

    message: str


@dataclass(frozen=True)
class Build(Job):
    """Compile a function as it is to a library with one function ``main``. target: as ``Target.export`` gives it."""

    func: PrimFunc
    target: Mapping[str, Any]
    output: Path

    def run(self) -> None:
        mod = run_passes(IRModule({MAIN: self.func}), entries())
        plain = Optimization(fusion=False, schedules=False)
        build_library(mod, Target(self.target), self.output, optimization=plain)


@dataclass(frozen=True)
class Run(Job):
    """Call a library once on fresh arguments; the reply is its results."""

    library: Path
    arguments: Arguments

    def run(self) -> list[np.ndarray]:
        values = self.arguments.load()
        Library(self.library)[MAIN](*values)
        return [values[i] for i in self.arguments.written]


@dataclass(frozen=True)
class Turns(Job):
    """Time libraries by turns, so that what else the machine does slows down all of them.

    The reply has the least seconds of a call for each. All but the first are compared with the first: those that are
    hopeless have a single turn.
    """

    libraries: tuple[tuple[Path, Arguments], ...]
    turns: int

    def run(self) -> list[float]:
        values = [arguments.load() for _, arguments in self.libraries]
        timed = [partial(seconds_of_call, path, given) for (path, _), given in zip(self.libraries, values, strict=True)]
        once = [measure(1) for measure in timed]
        kept = [i for i, seconds in enumerate(once) if i == 0 or seconds < HOPELESS * once[0]]
        turns = {i: [timed[i](_calls(once[i]))] for i in kept}
        for _ in range(1, self.turns):
            for i in kept:
                turns[i].append(timed[i](_calls(once[i])))
        return [min(turns.get(i, [seconds])) for i, seconds in enumerate(once)]


def _calls(seconds: float) -> int:
    """How many calls of so many seconds are measured together."""
    return max(1, math.ceil(SECONDS_OF_A_TURN / max(seconds, 1e-9)))


def seconds_of_call(path: Path, values: Sequence[Any], count: int) -> float:
    """The seconds of a call, the mean of some. The threads of the library's team end with the measurement.

    Of one thread the processor's time counts, in which other processes have no part.
    """
    library = Library(path)
    with library.context as context:
        clock = time.thread_time if context.num_threads == 1 else time.perf_counter
        call = library[MAIN].bind(*values).call
        call()
        begin = clock()
        for _ in range(count):
            call()
        return (clock() - begin) / count


def main() -> None:
    """Do jobs until standard input is closed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    workers.compile_here()
    jobs, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            job = receive(jobs)
        except EOFError:
            return
        assert isinstance(job, Job)
        try:
            reply = job.run()
        except MLCError as error:
            reply = Failed(error.message)
        send(replies, reply)
