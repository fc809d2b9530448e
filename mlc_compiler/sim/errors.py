"""The errors of the simulator."""

from __future__ import annotations

from mlc_errors import MLCError


class SimulationError(MLCError):
    """A kernel did what the PTX ISA does not define, or holds what the simulator does not know.

    ``where`` names the kernel, the instruction with its line, and the thread.
    """


class Fault(Exception):
    """A thread did something undefined. The machine adds kernel, instruction and thread, and raises SimulationError.

    lane: the thread's index among those simulated together, or None where the whole launch is at fault.
    """

    def __init__(self, message: str, lane: int | None = None, hint: str | None = None):
        super().__init__(message)
        self.message, self.lane, self.hint = message, lane, hint
