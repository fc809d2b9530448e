"""Schedule tensor functions by the first rule that applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..schedules.rule import Rule
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule, ScheduleError
from .base import FunctionPass


@dataclass(frozen=True)
class ApplySchedules(FunctionPass):
    """Schedule each tensor function by the first rule that applies.

    Functions with the attribute ``tir.is_scheduled`` are left alone. The attribute ``schedule`` names the rule.
    """

    name = "apply-schedules"
    rules: Sequence[Rule]
    target: Target

    def function(self, func: PrimFunc, name: str) -> PrimFunc:
        if func.attrs.get("tir.is_scheduled"):
            return func
        for rule in self.rules:
            result = _try(rule, func, self.target)
            if result is not None:
                attrs = {**result.func.attrs, "tir.is_scheduled": True, "schedule": type(rule).__name__}
                return replace(result.func, attrs=attrs)
        return func


def _try(rule: Rule, func: PrimFunc, target: Target) -> Schedule | None:
    """The rule's schedule; None when it does not apply to the function."""
    try:
        return rule.apply(func, target)
    except ScheduleError:
        if rule.must_apply:
            raise
        return None
