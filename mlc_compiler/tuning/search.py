"""Search for a task's fastest schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from random import Random

from mlc_errors import MLCError

from ..tir.schedule import ScheduleError
from .database import Database
from .measure import Limits, Ready, Trial
from .predict import MakeMeasuring, measurer_for
from .processes import Processes
from .record import Record
from .space import Candidate, Space
from .strategies import Evolution, History, Strategy
from .task import Task
from .worker import Failed

SETTLED = 4  # multiplies the turns of a trial, for the final measurement of the fastest few
FINALISTS = 3
PREDICTED_FIRST = 16  # trials with predicted times that a search with measured times repeats
ROUNDS = 4  # maximum number of rounds that measure finalists
LIMITS = Limits()


@dataclass(frozen=True)
class Progress:
    """State after a trial: task, number of its trials, seconds of the last trial (None: failed) and of the best."""

    task: Task
    trials: int
    seconds: float | None
    best: float | None
    failure: str = ""


@dataclass(frozen=True)
class _Best:
    """The fastest candidate of this search, and the minimum measured seconds of a call."""

    ready: Ready
    seconds: float


@dataclass
class Search:
    """The search of one task; ``run(count)`` makes more trials.

    Trials are stored in the database when done, and those in the database are not repeated, except those
    that a time limit ended, and, where candidates are timed, those with predicted times, of which the fastest come
    first. The first trial is the space's default, the baseline of gains. ``made``: the number
    of trials, excluding those from the database.
    Raises the errors of Measurer.
    """

    task: Task
    space: Space
    database: Database
    processes: Processes
    folder: Path
    strategy: Strategy = field(default_factory=Evolution)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    report: Callable[[Progress], None] = lambda _: None
    measuring: MakeMeasuring = measurer_for

    def __post_init__(self) -> None:
        self.history = History(self.task, self.space, Random(self.seed))
        self.measurer = self.measuring(self.task, self.processes, self.folder, self.limits)
        self._best: _Best | None = None
        self._default = self.space.default(self.task)
        self.exhausted = False
        self.made = 0
        self._cut_off: list[Candidate] = []
        self._predicted: list[tuple[float, Candidate]] = []
        for record in self.database.records(self.task.func, self.task.target):
            self._recall(record)

    @property
    def best_seconds(self) -> float | None:
        """The seconds of the fastest candidate, or None."""
        return min((seconds for seconds, _ in self.history.timed), default=None)

    @property
    def default_seconds(self) -> float | None:
        """The seconds of the space's default; None if there is none or it failed."""
        trial = self.history.by_key.get(self._default.key) if self._default else None
        return trial.seconds if trial else None

    def run(self, count: int, deadline: float = float("inf")) -> None:
        """Make up to ``count`` more trials; none starts after ``deadline`` (``time.monotonic``)."""
        if self.exhausted or count < 1:
            return
        self._best = self._best or self._recalled_best()
        candidates = self._proposed(count)
        self.exhausted = not candidates
        for made in self.measurer.build(candidates):
            if time.monotonic() > deadline and self.history.timed:
                return
            self._done(made if isinstance(made, Trial) else self._tried(made))

    def settle(self) -> Record:
        """Measure the default and the fastest few again, in turns, and record their times; returns the fastest.

        If another candidate then seems the fastest, it is measured too, since a time estimated as a ratio to an earlier
        best is only an estimate. Predicted times are final. Raises MLCError when no candidate gave a correct result.
        """
        settled: set[str] = set()
        for _ in range(0 if self.measurer.predicts else ROUNDS):
            finalists = {c.key: c for _, c in self.history.timed[:FINALISTS]}
            if not finalists or next(iter(finalists)) in settled:
                break
            if self._default is not None and self.default_seconds is not None:
                finalists[self._default.key] = self._default
            self._measure_again(list(finalists.values()))
            settled |= set(finalists)
        best = self.database.best(self.task.func, self.task.target)
        if best is None:
            count = len(self.history.trials)
            raise MLCError(f"tuning {self.task.name}: no candidate of {count} gave a right result")
        return best

    def _measure_again(self, candidates: list[Candidate]) -> None:
        ready = [made for made in self.measurer.build(candidates) if isinstance(made, Ready)]
        seconds = self.measurer.time(ready, SETTLED * self.limits.turns) if ready else []
        if not isinstance(seconds, Failed):
            for each, time_of in zip(ready, seconds, strict=True):
                self._record(Trial(each.candidate, time_of))

    # -- trials -------------------------------------------------------------------------------------------------

    def _proposed(self, count: int) -> list[Candidate]:
        default = [self._default] if self._default is not None else []
        predicted = [c for _, c in sorted(self._predicted, key=itemgetter(0))[:PREDICTED_FIRST]]
        first = {c.key: c for c in default + self._cut_off + predicted if c.key not in self.history.by_key}
        more = self.strategy.propose(self.history, count)
        return [*first.values(), *(c for c in more if c.key not in first)][:count]

    def _tried(self, ready: Ready) -> Trial:
        """The trial of a compiled candidate, measured in turns with the best one.

        If it is slower, its time is the best one's minimum times their ratio in these turns, so that a machine that is
        temporarily busy does not make it look slower. If it is faster, its time is at most that minimum; no ratio
        enters the time of a best candidate, because repeated ratios would drift towards 0 with noise.
        """
        failed = self.measurer.check(ready)
        if failed is not None:
            return failed
        if self._best is None:
            return self._first(ready)
        both = self._by_turns(self._best.ready, ready)
        if isinstance(both, Failed):
            return Trial(ready.candidate, None, both.message)
        of_best, seconds = both
        least = min(self._best.seconds, of_best)
        if seconds < of_best:
            self._best = _Best(ready, min(seconds, least))
            return Trial(ready.candidate, self._best.seconds)
        self._best = _Best(self._best.ready, least)
        return Trial(ready.candidate, seconds / of_best * least)

    def _first(self, ready: Ready) -> Trial:
        alone = self.measurer.time([ready])
        if isinstance(alone, Failed):
            return Trial(ready.candidate, None, alone.message)
        self._best = _Best(ready, alone[0])
        return Trial(ready.candidate, alone[0])

    def _by_turns(self, best: Ready, ready: Ready) -> tuple[float, float] | Failed:
        """Seconds of the best candidate and of another one, which gets more turns to confirm that it is faster."""
        first = self.measurer.time([best, ready])
        if isinstance(first, Failed) or first[1] >= first[0]:
            return first if isinstance(first, Failed) else (first[0], first[1])
        more = self.measurer.time([best, ready], SETTLED * self.limits.turns)
        return more if isinstance(more, Failed) else (min(first[0], more[0]), more[1])

    def _done(self, trial: Trial) -> None:
        self.made += 1
        self._record(trial)
        self.report(Progress(self.task, self.made, trial.seconds, self.best_seconds, trial.failure))

    def _recalled_best(self) -> _Best | None:
        """The fastest candidate of earlier searches, compiled again, or None."""
        for seconds, candidate in self.history.timed[:1]:
            for ready in self.measurer.build([candidate]):
                if isinstance(ready, Ready):
                    return _Best(ready, seconds)
        return None

    def _record(self, trial: Trial) -> None:
        target, arguments = self.task.target.export(), self.task.described()
        predicted = self.measurer.predicts
        record = Record(trial.candidate.trace, trial.seconds, target, arguments, trial.failure, predicted)
        self.history.add(trial)
        self.database.add(self.task.func, record)

    def _recall(self, record: Record) -> None:
        """Load a trial of an earlier search from the database; if a time limit ended it, only its candidate, to retry.

        A schedule that no longer applies is skipped.
        """
        candidate = self._recorded(record)
        if candidate is None or not self.history.has_layouts(candidate):
            return
        trial = Trial(candidate, record.seconds, record.failure)
        if record.predicted and not self.measurer.predicts:
            if record.seconds is not None:
                self._predicted.append((record.seconds, trial.candidate))
        elif trial.was_cut_off:
            self._cut_off.append(trial.candidate)
        else:
            self.history.add(trial)

    def _recorded(self, record: Record) -> Candidate | None:
        """The candidate of a record, or None. The default may be a kernel that is not made by steps."""
        if self._default is not None and record.trace.as_json() == self._default.key:
            return self._default
        try:
            return Candidate(record.schedule(self.task.workload).func, record.trace)
        except ScheduleError:
            return None


@dataclass(frozen=True)
class Budget:
    """Limits of a search. trials: per task; step: trials per proposal; seconds, total: time and trials of all tasks.

    Trials already in the database do not count.
    """

    trials: int = 64
    step: int = 8
    seconds: float = float("inf")
    total: float = float("inf")
