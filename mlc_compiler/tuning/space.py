"""Search spaces: functions that transform a schedule and make choices by sampling steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlc_errors import MLCError

from ..ir.structural import structural_equal
from ..schedules.rule import Rule, TunableRule, choose
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule, ScheduleError, Trace
from .guided import Decision, GuidedSchedule
from .record import portable
from .task import Task


@dataclass(frozen=True)
class Candidate:
    """A schedule of a workload: the scheduled function and its trace."""

    func: PrimFunc
    trace: Trace

    @cached_property
    def key(self) -> str:
        """Text that is equal for equal traces."""
        return self.trace.as_json()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions of the sampling steps, in order."""
        return tuple(self.trace.decisions.values())


class Space(ABC):
    """Base class of search spaces. ``schedule`` runs once per candidate, with different decisions."""

    @abstractmethod
    def schedule(self, s: Schedule) -> Schedule | None:
        """Apply the space's steps to a schedule; None, or a ScheduleError, if the decisions give no valid schedule."""

    def candidate(
        self, task: Task, seed: int = 0, decisions: Sequence[Decision] = (), explore: bool = True
    ) -> Candidate | None:
        """The candidate with the given decisions, see ``GuidedSchedule``; None if they give no valid schedule."""
        begun = GuidedSchedule(task.workload, task.name, seed=seed, decisions=decisions, explore=explore)
        try:
            s = self.schedule(begun)
        except ScheduleError:
            return None
        return None if s is None else Candidate(s.func, portable(s.trace))

    def default(self, task: Task) -> Candidate | None:
        """The candidate in which every choice with a default takes it."""
        return self.candidate(task, explore=False)


@dataclass(frozen=True)
class ScheduleFn(Space):
    """The space of a user's function that transforms a ``Schedule``."""

    function: Callable[[Schedule], Any]

    def schedule(self, s: Schedule) -> Schedule:
        result = self.function(s)
        if result is not None and not isinstance(result, Schedule):
            raise MLCError(f"a function of a space returned a {type(result).__name__}; expected a schedule or None")
        return s if result is None else result


@dataclass(frozen=True)
class RuleSpace(Space):
    """The schedules of the first rule that applies; rules other than ``TunableRule`` have one schedule.

    Its trace is empty if the rule does not make it by steps.
    """

    rules: Sequence[Rule]
    target: Target

    def schedule(self, s: Schedule) -> Schedule | None:
        for rule in self.rules:
            begun = s.copy()
            try:
                result = _applied(rule, begun, self.target)
            except ScheduleError:
                continue
            if result is not None:
                return result
        return None


def _applied(rule: Rule, s: Schedule, target: Target) -> Schedule | None:
    if isinstance(rule, TunableRule):
        return rule.schedule(s, target)
    found = rule.apply(s.func, target)
    if found is None or _replays(found, s.func):
        return found
    return Schedule(found.func)  # with an empty trace, which stands for the rules


def _replays(found: Schedule, func: PrimFunc) -> bool:
    """Whether the trace of a rule's schedule makes its function, rather than a kernel that the rule wrote."""
    again = Schedule(func)
    try:
        found.trace.apply_to_schedule(again)
    except ScheduleError:
        return False
    return structural_equal(again.func, found.func)


@dataclass(frozen=True)
class AnyOf(Space):
    """The union of several spaces. The first decision selects the space; its default is the first space."""

    spaces: Sequence[Space]

    def schedule(self, s: Schedule) -> Schedule | None:
        return self.spaces[choose(s, range(len(self.spaces)), 0)].schedule(s)
