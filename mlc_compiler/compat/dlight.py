"""``tvm.dlight``: schedule rules. The target's back end chooses the rule of each function during ``build``."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from .transforms import ModulePass, done_by_build

_GPU = ("Matmul", "GEMV", "LowBatchGEMV", "Reduction", "GeneralReduction", "Transpose", "RMSNorm", "Fallback")
_CPU = ("GEMV", "Reduction")


@dataclass(frozen=True)
class ScheduleRule:
    """A rule by TVM's name; the back end has its own rules for such functions."""

    name: str


def _rules(device: str, names: tuple[str, ...]) -> SimpleNamespace:
    return SimpleNamespace(**{name: lambda name=name: ScheduleRule(f"{device}.{name}") for name in names})


gpu, cpu = _rules("gpu", _GPU), _rules("cpu", _CPU)


def ApplyDefaultSchedule(*rules: ScheduleRule) -> ModulePass:
    """Schedule tensor functions; a no-op here, because ``build`` applies the rules of the target's back end."""
    return done_by_build("ApplyDefaultSchedule", "apply-schedules")
