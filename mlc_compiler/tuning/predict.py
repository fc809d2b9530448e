"""Predicted times of candidates for a GPU that this machine does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..backends.cuda.images import Resources, find_assembler
from ..backends.cuda.machine import runs_here
from ..target import Target
from .gpu_accounting import gpu_account
from .gpu_prediction import GpuAccount
from .measure import Limits, Measurer, Measuring, Ready, Trial
from .processes import Processes
from .space import Candidate
from .task import Task
from .worker import DESCENDING, Arguments, Assemble, BuildLoops, Failed, Job

AFFORDABLE = 1e9  # instructions of all threads of a function whose results are checked


class Predictor(Measurer):
    """Predicts the times of candidates for a GPU, and checks their results on this machine's CPU.

    Kernels run as loops over their threads, in ascending and in descending order, which finds most missing barriers.
    Functions of more than AFFORDABLE instructions are not run, nor kernels that a rule writes without steps, which the
    rules apply whether or not they are in a database. With an assembler for PTX, the number of registers is the
    assembler's instead of an estimate. Candidates with values of threads that are not in registers fail.
    """

    predicts = True

    def __init__(self, task: Task, processes: Processes, folder: Path, limits: Limits):
        super().__init__(task, processes, folder, limits)
        self._accounts: dict[str, GpuAccount] = {}
        self._assembles = find_assembler() is not None

    def build(self, candidates: Sequence[Candidate]) -> list[Ready | Trial]:
        """Predict the times of candidates, and compile as loops those that are checked."""
        accounts = [gpu_account(c.func, self.task.target, self.task.sizes) for c in candidates]
        assembled = self._assembled(candidates)
        trials: dict[str, Ready | Trial] = {}
        for candidate, account, found in zip(candidates, accounts, assembled, strict=True):
            trials[candidate.key] = self._predicted(candidate, account, found)
        checked = [c for c in candidates if isinstance(trials[c.key], Ready) and self._is_checked(c)]
        trials |= {c.key: made for c, made in zip(checked, super().build(checked), strict=True)}
        return [trials[c.key] for c in candidates]

    def _job(self, candidate: Candidate, library: Path) -> Job:
        return BuildLoops(candidate.func, self.task.target.export(), library)

    def _assembled(self, candidates: Sequence[Candidate]) -> list[Any]:
        """The resources of each candidate's kernels, or a Failed; None without an assembler."""
        if not self._assembles:
            return [None] * len(candidates)
        jobs = [Assemble(c.func, self.task.target.export()) for c in candidates]
        return self.processes.build(jobs, self.limits.build)

    def _predicted(
        self, candidate: Candidate, account: GpuAccount, found: Sequence[Resources] | Failed | None
    ) -> Ready | Trial:
        if isinstance(found, Failed):
            return Trial(candidate, None, f"compilation: {found.message}")
        self._accounts[candidate.key] = account = account if found is None else account.assembled(found)
        if account.problem:
            return Trial(candidate, None, account.problem)
        return Ready(candidate, self.folder / "none.so", Arguments(self._file, self.task.written))

    def _is_checked(self, candidate: Candidate) -> bool:
        return bool(candidate.trace) and self._accounts[candidate.key].thread_instructions <= AFFORDABLE

    def check(self, ready: Ready) -> Trial | None:
        """Run the loops once in each order, where affordable; returns a failed Trial as ``Measurer.check`` does."""
        if not self._is_checked(ready.candidate):
            return None
        failed = super().check(ready)
        if failed is not None:
            return failed
        failure = self._failure(ready, DESCENDING)
        return Trial(ready.candidate, None, f"threads in descending order: {failure}") if failure else None

    def time(self, libraries: Sequence[Ready], turns: int | None = None) -> list[float] | Failed:
        """The predicted seconds of a call of each."""
        return [self._accounts[ready.candidate.key].seconds for ready in libraries]


def is_timed(target: Target) -> bool:
    """Whether this machine can run code for a target; the times of other candidates are predicted."""
    return target.kind == "cpu" or runs_here(target)


MakeMeasuring = Callable[[Task, Processes, Path, Limits], Measuring]


def measurer_for(task: Task, processes: Processes, folder: Path, limits: Limits) -> Measurer:
    """The measurer of a task's candidates. Raises as Measurer does."""
    kind = Measurer if is_timed(task.target) else Predictor
    return kind(task, processes, folder, limits)
