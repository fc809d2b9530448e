"""Schedule of functions that no other rule matches."""

from __future__ import annotations

from ....ir.expr import Var
from ....schedules.rule import Rule, analyse
from ....target import Target
from ....tir.nodes import PrimFunc
from ....tir.schedule import Schedule, ScheduleError

THREADS = 256


class Fallback(Rule):
    """One thread for each point of the spatial loops of every nest, a kernel for each nest."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None:
            return None
        s = Schedule(func)
        for block in blocks.in_order:
            kinds = [it.kind for it in block.iter_vars]
            loops = s.get_loops(block.name)
            spatial = next((i for i, k in enumerate(kinds) if k == "R"), len(kinds))
            if spatial and len(loops) == len(kinds):
                _try_bind(s, loops[:spatial])
        return s


def _try_bind(s: Schedule, loops: list[Var]) -> None:
    """Bind the fused loops, unless they are not perfectly nested or carry a dependence."""
    try:
        grid, thread = s.split(s.fuse(*loops), [None, THREADS])
        s.bind(grid, "blockIdx.x")
        s.bind(thread, "threadIdx.x")
    except ScheduleError:
        return
