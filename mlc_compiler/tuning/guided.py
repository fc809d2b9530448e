"""Schedules whose sampling steps follow a list of decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.expr import Var
from ..ir.module import IRModule
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule, ScheduleError

Decision = Any
"""Of a sampling step: the factors of a tiling, the position of a candidate, or the number of a place."""


class GuidedSchedule(Schedule):
    """A schedule whose n-th sampling step uses the n-th of ``decisions``.

    If there is none, or it is impossible after the earlier decisions, the step chooses one: with ``explore``
    at random, even if the caller passes a decision (the default); otherwise the default, or at random without one.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        func_name: str | None = None,
        *,
        seed: int | None = None,
        decisions: Sequence[Decision] = (),
        explore: bool = True,
    ):
        super().__init__(mod, func_name, seed=seed)
        self._decisions = list(decisions)
        self._explore = explore

    def copy(self, seed: int | None = None) -> GuidedSchedule:
        """An independent schedule in the same state, which makes the same choices unless ``seed`` is given."""
        other = super().copy(seed)
        assert isinstance(other, GuidedSchedule)
        other._decisions = list(self._decisions)
        if seed is None:
            other._random.setstate(self._random.getstate())
        return other

    def sample_perfect_tile(
        self, loop: Var, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> Any:
        draw = super().sample_perfect_tile
        return self._guided(lambda d: draw(loop, n, max_innermost_factor, d), decision)

    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None) -> Any:
        draw = super().sample_categorical
        return self._guided(lambda d: draw(candidates, probs, d), decision)

    def sample_compute_location(self, block: str, decision: int | None = None) -> Any:
        draw = super().sample_compute_location
        return self._guided(lambda d: draw(block, d), decision)

    def _guided(self, draw: Callable[[Decision], Any], default: Decision) -> Any:
        if self._decisions:
            try:
                return draw(self._decisions.pop(0))
            except ScheduleError:
                pass
        return draw(None if self._explore else default)
