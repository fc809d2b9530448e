"""Reductions in SIMD lanes."""

from __future__ import annotations

from ....ir.expr import Var
from ....tir.schedule import Schedule


def reduce_in_lanes(s: Schedule, loop: Var, lanes: int, axis: int, nest: str | None = None) -> tuple[str, str]:
    """Reduce each of ``lanes`` lanes of a reduction loop, then the lanes, which are an axis of a new buffer.

    axis: number of loops around the reduction loop. nest: the reduction's block, if no other block is in its nest; the
    lanes are then moved into the loops of the result. Returns the blocks that initialise and that update the lanes;
    their innermost loops are to be vectorized.
    """
    _, lane = s.split(loop, [None, lanes])
    partial = s.rfactor(lane, axis)
    if nest is not None:
        s.compute_at(partial, s.get_loops(nest)[axis - 1])
    return s.decompose_reduction(partial, s.get_loops(partial)[-2]), f"{partial}_update"
