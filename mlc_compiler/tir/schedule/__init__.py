"""Schedules of tensor functions."""

from .schedule import Schedule
from .trace import BlockName, Trace
from .tree import ScheduleError

__all__ = ["BlockName", "Schedule", "ScheduleError", "Trace"]
