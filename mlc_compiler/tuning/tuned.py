"""Schedule rule that looks schedules up in a database."""

from __future__ import annotations

from dataclasses import dataclass

from ..schedules.rule import Rule
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule
from .database import Database


@dataclass(frozen=True, eq=False)
class Tuned(Rule):
    """Applies the fastest schedule of the function on the target in a database.

    As the first rule of ``ApplySchedules``, it leaves functions that are not in the database,
    or on which the recorded steps no longer apply, to the other rules, and so those whose fastest record has no steps.
    """

    database: Database

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        record = self.database.best(func, target)
        return None if record is None or not record.trace else record.schedule(func)
