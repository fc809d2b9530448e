"""Schedule search over several tasks, such as those of a module, prioritized by the time they take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlc_errors import MLCError
from mlc_scratch import temporary_folder

from ..backends import backend_of
from ..ir.module import GlobalVar, IRModule
from ..ir.visitor import walk
from ..optimization import Optimization
from ..passes.apply_schedules import ApplySchedules
from ..pipeline import pipeline, run_passes
from ..relax.nodes import Function
from ..target import Target
from ..tir.nodes import PrimFunc
from .cpu_space import CpuSketches
from .database import Database
from .estimate import estimate
from .gpu_space import GpuSketches
from .measure import check_searched
from .predict import MakeMeasuring, measurer_for
from .processes import Processes
from .search import LIMITS, Budget, Progress, Search
from .space import AnyOf, RuleSpace, Space
from .strategies import Evolution, Strategy
from .task import Task

PATIENCE = 16  # number of trials without a gain that halve a task's weight


def default_space(target: Target) -> Space:
    """The default search space: the rules of the target's back end, and its sketches for functions without a rule."""
    rules = RuleSpace(backend_of(target).lowering(target, Optimization()).rules, target)
    sketches = {"cpu": CpuSketches(), "cuda": GpuSketches()}.get(target.kind)
    return rules if sketches is None else AnyOf((rules, sketches))


@dataclass(frozen=True)
class Outcome:
    """Result of the search of a task: seconds per call by default and at best, trials, and failed trials.

    problem: why the task was not measured; empty otherwise.
    """

    task: Task
    default_seconds: float | None = None
    best_seconds: float | None = None
    trials: int = 0
    failed: int = 0
    problem: str = ""

    @property
    def gain(self) -> float | None:
        """Speedup of the best schedule over the default one."""
        if self.default_seconds is None or self.best_seconds is None:
            return None
        return self.default_seconds / self.best_seconds


def tasks_of(mod: IRModule, target: Target, optimization: Optimization, sizes: Mapping[str, int]) -> list[Task]:
    """The tensor functions of a module that are unscheduled when the pipeline reaches ``ApplySchedules``.

    Their weights may be those of other functions, so they keep their layouts. mod: a module as for ``build_library``.
    sizes: values of symbolic sizes during measurement, by name.
    """
    passes = pipeline(target, optimization)
    at = next(i for i, step in enumerate(passes) if isinstance(step, ApplySchedules))
    prepared = run_passes(mod, passes[:at])
    calls = Counter(
        n.name for f in prepared.of_type(Function).values() for n in walk(f.blocks) if isinstance(n, GlobalVar)
    )
    functions = prepared.of_type(PrimFunc).items()
    return [Task(n, f, target, sizes, calls[n], True) for n, f in functions if not f.attrs.get("tir.is_scheduled")]


def tune_tasks(
    tasks: Sequence[Task],
    database: Database,
    budget: Budget,
    *,
    space: Space | None = None,
    strategy: Callable[[], Strategy] = Evolution,
    seed: int = 0,
    report: Callable[[Progress], None] = lambda _: None,
    measuring: MakeMeasuring = measurer_for,
) -> list[Outcome]:
    """Tune tasks until the budget is spent, prioritizing those that take most of the program's time.

    Results are stored in the database. A task without arguments, or whose function does not run, is skipped, and its
    outcome says so. measuring: makes what finds the times of a task's candidates; by default, times for a GPU that is
    not here are predicted. Raises UnsupportedError for a target whose candidates can be neither timed nor predicted,
    MLCError for a single task that is skipped or has no correct candidate.
    """
    for task in tasks:
        check_searched(task.target)
    with Processes() as processes, temporary_folder("tune") as folder:
        entries = [_Entry(task, folder / str(i)) for i, task in enumerate(tasks)]
        run = _Run(entries, database, processes, budget, space, strategy, seed, report, measuring)
        run.until_spent()
        return [run.outcome(entry) for entry in entries]


@dataclass(eq=False)
class _Entry:
    """A task and its search, which starts when the task is first chosen."""

    task: Task
    folder: Path
    search: Search | None = None
    problem: str = ""
    estimate: float = 0.0
    last_gain: int = 0
    best: float = float("inf")

    @property
    def trials(self) -> int:
        return self.search.made if self.search else 0

    def is_open(self, budget: Budget) -> bool:
        exhausted = self.search is not None and self.search.exhausted
        return not self.problem and not exhausted and self.trials < budget.trials

    @property
    def weight(self) -> float:
        """The time that a program spends in the task, discounted after trials without a gain."""
        best = self.search.best_seconds if self.search else None
        seconds = self.estimate if best is None else best
        return self.task.calls * seconds * 0.5 ** ((self.trials - self.last_gain) / PATIENCE)


@dataclass
class _Run:
    entries: list[_Entry]
    database: Database
    processes: Processes
    budget: Budget
    space: Space | None
    strategy: Callable[[], Strategy]
    seed: int
    report: Callable[[Progress], None]
    measuring: MakeMeasuring
    made: int = 0
    end: float = float("inf")

    def __post_init__(self) -> None:
        for entry in self.entries:
            default = self._space(entry).default(entry.task)
            if default is not None:
                entry.estimate = estimate(default.func, entry.task.target, entry.task.sizes).seconds

    def until_spent(self) -> None:
        """Run steps of the open task with the largest weight; at the end, measure the fastest candidates once more."""
        self.end = time.monotonic() + self.budget.seconds
        while self.made < self.budget.total and time.monotonic() < self.end:
            open_ = [entry for entry in self.entries if entry.is_open(self.budget)]
            if not open_:
                break
            self._step(max(open_, key=lambda entry: entry.weight))
        for entry in self.entries:
            if entry.search is not None and (entry.search.history.timed or len(self.entries) == 1):
                entry.search.settle()

    def _step(self, entry: _Entry) -> None:
        try:
            search = entry.search or self._begin(entry)
        except MLCError as error:
            entry.problem = error.message
            if len(self.entries) == 1:
                raise
            return
        before = entry.trials
        search.run(int(min(self.budget.step, self.budget.trials - before, self.budget.total - self.made)), self.end)
        self.made += entry.trials - before
        best = search.best_seconds
        if best is not None and best < entry.best:
            entry.best, entry.last_gain = best, entry.trials

    def _begin(self, entry: _Entry) -> Search:
        entry.folder.mkdir()
        entry.search = Search(
            *(entry.task, self._space(entry), self.database, self.processes, entry.folder),
            *(self.strategy(), LIMITS, self.seed, self.report, self.measuring),
        )
        return entry.search

    def _space(self, entry: _Entry) -> Space:
        return self.space or default_space(entry.task.target)

    def outcome(self, entry: _Entry) -> Outcome:
        search = entry.search
        if search is None:
            return Outcome(entry.task, problem=entry.problem or "its share of the time was too small")
        records = self.database.records(entry.task.func, entry.task.target)
        failed = sum(record.seconds is None for record in records)
        best = self.database.best(entry.task.func, entry.task.target)
        return Outcome(entry.task, search.default_seconds, best.seconds if best else None, entry.trials, failed)
