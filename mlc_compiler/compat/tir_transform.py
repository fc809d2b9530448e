"""``tvm.tir.transform``."""

from __future__ import annotations

from .transforms import ModulePass, done_by_build


def DefaultGPUSchedule() -> ModulePass:
    """Schedules of tensor functions for GPUs: the rules of the target's back end give them during ``build``."""
    return done_by_build("DefaultGPUSchedule", "apply-schedules")
