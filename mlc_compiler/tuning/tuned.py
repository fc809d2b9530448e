"""The schedule rule that takes schedules out of a database."""

from __future__ import annotations

from dataclasses import dataclass

from ..schedules.rule import Rule
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule
from .database import Database


@dataclass(frozen=True, eq=False)
class Tuned(Rule):
    """The fastest schedule that a database has of the function on the target.

    First among the rules of ``ApplySchedules``, it leaves to the others the functions that the database does not have,
    and those on which the recorded steps no longer apply.
    """

    database: Database

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        record = self.database.best(func, target)
        return None if record is None else record.schedule(func)
