"""Records of measured schedules, and their workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlc_version import __version__

from ..ir.structural import structural_hash
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule, Trace
from ..tir.schedule.trace import Step

MAIN = "main"
_NOT_OF_THE_WORKLOAD = ("global_symbol", "op_pattern")


def workload_of(func: PrimFunc) -> PrimFunc:
    """The function without its name and without attributes that do not affect its loops and parameters."""
    return replace(func, attrs={k: v for k, v in func.attrs.items() if k not in _NOT_OF_THE_WORKLOAD})


def workload_hash(func: PrimFunc) -> str:
    """The key of an unscheduled function in a database, equal for functions that differ only in names."""
    return structural_hash(workload_of(func))


@dataclass(frozen=True)
class Record:
    """A trial of a schedule of a workload.

    seconds: time of one call, the minimum of several measurements; None when it failed, with the reason in ``failure``.
    target: from ``Target.export``. arguments: dtype and shape of each argument. predicted: whether the seconds, or the
    failure, are a prediction for a GPU that was not there. compiler: version of the compiler.
    """

    trace: Trace
    seconds: float | None
    target: Mapping[str, Any]
    arguments: Sequence[tuple[str, Sequence[int]]] = ()
    failure: str = ""
    predicted: bool = False
    compiler: str = field(default=__version__)

    @property
    def key(self) -> str:
        """Text that is equal for equal schedules on the same target."""
        return f"{self.trace.as_json()} {sorted(self.target.items())}"

    def is_for(self, target: Target) -> bool:
        return dict(self.target) == target.export()

    def schedule(self, func: PrimFunc) -> Schedule:
        """Replay the trace on a function. Raises ScheduleError when it does not apply."""
        sch = Schedule(func)
        self.trace.apply_to_schedule(sch)
        return sch


def portable(trace: Trace) -> Trace:
    """Remove the function name from a trace, so that it applies to functions of any name."""
    return Trace([_without_function(step) for step in trace])


def _without_function(step: Step) -> Step:
    return replace(step, keywords={k: v for k, v in step.keywords.items() if k != "func_name"})
