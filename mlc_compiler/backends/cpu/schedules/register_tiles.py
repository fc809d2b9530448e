"""Tiles of sums that stay in registers: rows unrolled, columns in SIMD lanes."""

from __future__ import annotations

from itertools import compress

from ....ir.expr import Var, is_const
from ....ir.visitor import walk
from ....schedules.rule import largest_divisor
from ....tir.nodes import Block, BufferLoad
from ....tir.schedule import Schedule, ScheduleError


def check_elementwise(product: Block, last: Block) -> None:
    """Raise ScheduleError unless the last block reads one element of the reduction per element that it writes."""
    accumulated = product.writes[0].buffer
    loads = [n for n in walk(last.body) if isinstance(n, BufferLoad) and n.buffer is accumulated]
    wide = [not is_const(size, 1) for size in accumulated.shape]
    places = {tuple(compress(map(id, load.indices), wide)) for load in loads}
    own = {id(it.var) for it in last.iter_vars}
    if len(places) != 1 or any(len(own.intersection(p)) < len(p) for p in places):
        raise ScheduleError(f"block {last.name!r} reads {accumulated.name!r} elsewhere than where it writes")


def static_heights(extent: int, heights: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
    """The tile heights for a constant number of rows, and the row at which each next height begins."""
    used, points, done = [], [], 0
    for height in heights:
        if extent - done >= height:
            done += (extent - done) // height * height
            used.append(height)
            points.append(done)
    return tuple(used), points[:-1]


def split_depth(s: Schedule, reduction: Var, unrolled: int) -> list[Var]:
    """Split the reduction into steps and the at most ``unrolled`` iterations of a step."""
    extent = s.extent(reduction)
    if not isinstance(extent, int):
        return [reduction]
    return s.split(reduction, [None, largest_divisor(extent, unrolled)])


def sum_in_registers(s: Schedule, block: str, step: Var) -> None:
    """Initialise a reduction's accumulators before ``step``; unroll rows, vectorize columns."""
    depth = [v is step for v in s.get_loops(block)].index(True)
    init = s.decompose_reduction(block, step)
    unroll_around_lanes(s, init, skip=depth)
    update = f"{block}_update"
    unroll_around_lanes(s, update, skip=len(s.get_loops(update)) - len(s.get_loops(init)) + depth)


def unroll_around_lanes(s: Schedule, block: str, skip: int) -> None:
    """Vectorize the innermost loop of a block and unroll those around it, without its ``skip`` outermost loops."""
    loops = s.get_loops(block)[skip:]
    for loop in loops[:-1]:
        s.unroll(loop)
    for loop in loops[-1:]:
        s.vectorize(loop)
