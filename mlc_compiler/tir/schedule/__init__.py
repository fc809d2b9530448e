"""Schedules of tensor functions."""

from .schedule import Schedule
from .tree import ScheduleError

__all__ = ["Schedule", "ScheduleError"]
