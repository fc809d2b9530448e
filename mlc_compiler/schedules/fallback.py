"""Schedule rule for functions that no other rule matches, for every back end."""

from __future__ import annotations

from ..ir.expr import Var
from ..target import Target
from ..tir.nodes import PrimFunc
from ..tir.schedule import Schedule, ScheduleError
from .rule import Rule, analyse


class Fallback(Rule):
    """Parallelizes the spatial loops of every nest; matches any function with blocks."""

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
                _try_parallel(s, loops[:spatial])
        return s


def _try_parallel(s: Schedule, loops: list[Var]) -> None:
    """Fuse and parallelize loops, unless they are not perfectly nested or carry a dependence."""
    try:
        s.parallel(s.fuse(*loops))
    except ScheduleError:
        return
