"""Reductions in SIMD lanes."""

from __future__ import annotations

from ....ir.expr import Var
from ....tir.schedule import Schedule


def reduce_in_lanes(s: Schedule, loop: Var, lanes: int, axis: int) -> tuple[str, str]:
    """Reduce each of ``lanes`` lanes of a reduction loop, then the lanes, which are an axis of a new buffer.

    Returns the blocks that initialise and that update the lanes; their innermost loops are to be vectorized.
    """
    _, lane = s.split(loop, [None, lanes])
    partial = s.rfactor(lane, axis)
    return s.decompose_reduction(partial, s.get_loops(partial)[-2]), f"{partial}_update"
