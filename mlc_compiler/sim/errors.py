"""Errors of the simulator."""

from __future__ import annotations

from mlc_errors import MLCError


class SimulationError(MLCError):
    """A kernel has undefined behaviour by the PTX ISA, or uses features that are not simulated.

    ``where`` names the kernel, the instruction with its line, and the thread.
    """


class Fault(Exception):
    """Undefined behaviour of a thread. The machine adds kernel, instruction and thread, and raises SimulationError.

    lane: the thread's index among those simulated together, or None for the whole launch.
    """

    def __init__(self, message: str, lane: int | None = None, hint: str | None = None):
        super().__init__(message)
        self.message, self.lane, self.hint = message, lane, hint
