"""Child process that compiles and runs candidates; ``main`` reads jobs from standard input and writes replies.

A candidate may crash or hang the process; the parent (``processes.py``) then kills it and starts another. It dies
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

from ..backends.cuda.images import Resources, find_assembler, llvm_modules
from ..backends.cuda.launches import Kernel
from ..backends.cuda.passes.simt_to_loops import SimtToLoops
from ..codegen import workers
from ..codegen.llvm_worker import receive, send
from ..codegen.native import assemble_modules
from ..driver import build_library
from ..ir.module import IRModule
from ..optimization import Optimization
from ..pipeline import entries, pipeline, run_passes
from ..target import Target
from ..tir.index_map import IndexMap
from ..tir.nodes import PrimFunc
from .gpu_accounting import kernels_of
from .record import MAIN

PR_SET_PDEATHSIG = 1
DESCENDING = "descending"
"""The function of a ``BuildLoops`` whose threads run from the last to the first."""
SECONDS_OF_A_TURN = 0.01
HOPELESS = 3.0  # candidates this many times slower than the best one get no further turns


@dataclass(frozen=True)
class Arguments:
    """Arguments of a workload, pickled in a file as a list; ``written``: positions of the results.

    layouts: position -> index map, as text, for arguments that the candidate reads in a packed layout.
    """

    file: Path
    written: tuple[int, ...]
    layouts: Mapping[int, str] = field(default_factory=dict)

    def load(self) -> list[Any]:
        found = pickle.loads(self.file.read_bytes())
        return [IndexMap.parse(self.layouts[i]).pack(a) if i in self.layouts else a for i, a in enumerate(found)]


class Job(ABC):
    """A job of the child process, whose result is sent back."""

    @abstractmethod
    def run(self) -> Any:
        """Run the job and return the reply. An MLCError is sent back as a Failed."""


@dataclass(frozen=True)
class Failed:
    """Reply of a job that failed, with the reason; the process keeps running."""

    message: str


@dataclass(frozen=True)
class Build(Job):
    """Compile a function without scheduling it to a library with one function ``main``. target: an exported target."""

    func: PrimFunc
    target: Mapping[str, Any]
    output: Path

    def run(self) -> None:
        mod = run_passes(IRModule({MAIN: self.func}), entries())
        plain = Optimization(fusion=False, schedules=False)
        build_library(mod, Target(self.target), self.output, optimization=plain)


@dataclass(frozen=True)
class BuildLoops(Build):
    """Compile kernels for a GPU as loops over threads for this machine, in ascending (``main``) and descending order.

    target: the GPU's.
    """

    def run(self) -> None:
        kernels = IRModule({MAIN: kernels_of(self.func, Target(self.target))})
        orders = {MAIN: False, DESCENDING: True}
        loops = {name: SimtToLoops(descending).run(kernels)[MAIN] for name, descending in orders.items()}
        named = {name: func.with_attr("global_symbol", name) for name, func in loops.items()}
        plain = Optimization(fusion=False, schedules=False)
        build_library(run_passes(IRModule(named), entries()), Target("cpu"), self.output, optimization=plain)


@dataclass(frozen=True)
class Assemble(Job):
    """Assemble the kernels of a scheduled function for a GPU; the reply is the resources of each kernel, in order."""

    func: PrimFunc
    target: Mapping[str, Any]

    def run(self) -> list[Resources]:
        target = Target(self.target)
        plain = Optimization(fusion=False, schedules=False)
        lowered = run_passes(run_passes(IRModule({MAIN: self.func}), entries()), pipeline(target, plain))
        kernels: dict[str, Kernel] = {}
        assemble = find_assembler()
        assert assemble is not None
        found: dict[str, Resources] = {}
        for text in assemble_modules(llvm_modules(lowered, target, kernels), target):
            found |= assemble(text, target.cpu).resources
        return [found[name] for name in kernels]


@dataclass(frozen=True)
class Run(Job):
    """Call a function of a library once on fresh arguments; the reply is the list of its results."""

    library: Path
    arguments: Arguments
    name: str = MAIN

    def run(self) -> list[np.ndarray]:
        values = self.arguments.load()
        Library(self.library)[self.name](*values)
        return [values[i] for i in self.arguments.written]


@dataclass(frozen=True)
class Turns(Job):
    """Time libraries in turns, so that other load on the machine affects all of them equally.

    The reply is the minimum seconds of a call for each. All are compared with the first: those that are
    hopelessly slower get a single turn.
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
    """The number of calls measured together, given the seconds of one."""
    return max(1, math.ceil(SECONDS_OF_A_TURN / max(seconds, 1e-9)))


def seconds_of_call(path: Path, values: Sequence[Any], count: int) -> float:
    """The mean seconds of ``count`` calls. The library's worker threads end with the measurement.

    With one thread of a CPU, its CPU time is measured, which excludes other processes. A call on a GPU includes the
    wait for its end; arrays are copied there before.
    """
    library = Library(path)
    with library.context as context:
        alone = context.num_threads == 1 and not library.is_for_gpu
        clock = time.thread_time if alone else time.perf_counter
        placed = [library.memory.loaded(v) if isinstance(v, np.ndarray) else v for v in values]
        call = library[MAIN].bind(*placed).call
        call()
        begin = clock()
        for _ in range(count):
            call()
        return (clock() - begin) / count


def main() -> None:
    """Run jobs until standard input is closed."""
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
