"""Schedule of reductions over several axes at once: group norms, means of images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....ir.simplify import Analyzer
from ....ir.visitor import uses, walk
from ....schedules.rule import Blocks, Rule, analyse, constant_extent
from ....target import Target
from ....tir.calling import step_along
from ....tir.nodes import Block, BufferLoad, BufferStore, IterVar, PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from .lanes import reduce_in_lanes
from .rowwise import is_of_floats, tile_elementwise


class WideReduction(Rule):
    """Reductions over two or more axes whose innermost one fills SIMD lanes, or whose results are much smaller.

    Computes one reduction after the other, results in parallel, SIMD lanes along the innermost axis, or along all
    reduced axes if these are adjacent in memory. The last block has the loops that choose the reductions' results
    outermost, so that what depends on these alone is computed once. ``RowReduction`` would repeat the reductions for
    each row.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks, lanes = analyse(func), Cpu.of(target).lanes(32)
        if blocks is None or not blocks.reductions or not all(_is_wide(b, blocks, lanes) for b in blocks.reductions):
            return None
        s = Schedule(func)
        for block in blocks.in_order[:-1]:
            if not block.is_reduction:
                s.compute_inline(block.name)
        for block in blocks.reductions:
            _reduce(s, block, lanes)
        if not blocks.last.is_reduction:
            _elementwise(s, blocks, lanes)
        return s


def _is_wide(block: Block, blocks: Blocks, lanes: int) -> bool:
    kinds = "".join(it.kind for it in block.iter_vars)
    if kinds.count("R") < 2 or "RS" in kinds or "S" not in kinds:
        return False
    fewer = block is not blocks.last and kinds.count("S") <= len(blocks.last.iter_vars) - 2
    return fewer or _fills_lanes(block, lanes)


def _fills_lanes(block: Block, lanes: int) -> bool:
    reduced = [it for it in block.iter_vars if it.kind == "R"]
    innermost = reduced if _are_adjacent(block, reduced) else reduced[-1:]
    extents = [constant_extent(it.extent) or 0 for it in innermost]
    return is_of_floats(block) and prod(extents) >= 2 * lanes


def _are_adjacent(block: Block, axes: Sequence[IterVar]) -> bool:
    """Whether every access along some of the axes goes through all of them in order of memory."""
    analyzer = Analyzer()
    sizes = [constant_extent(it.extent) or 0 for it in axes]
    wanted = [prod(sizes[n + 1 :]) for n in range(len(axes))]
    accesses = [n for n in walk(block.body) if isinstance(n, BufferLoad | BufferStore)]
    steps = [[step_along(access, it.var, analyzer) for it in axes] for access in accesses]
    return 0 not in sizes and all(found in (wanted, [0] * len(axes)) for found in steps)


def _reduce(s: Schedule, block: Block, lanes: int) -> None:
    count = sum(it.kind == "S" for it in block.iter_vars)
    if _fills_lanes(block, lanes):
        if _are_adjacent(block, block.iter_vars[count:]):
            s.fuse(*s.get_loops(block.name)[count:])
        for name in reduce_in_lanes(s, s.get_loops(block.name)[-1], lanes, axis=count, nest=block.name):
            s.vectorize(s.get_loops(name)[-1])
    s.parallel(s.fuse(*s.get_loops(block.name)[:count]))


def _elementwise(s: Schedule, blocks: Blocks, lanes: int) -> None:
    """Schedule the last block, with the loops that choose the reductions' results around adjacent elements."""
    last, sums = blocks.last, {id(w.buffer) for b in blocks.reductions for w in b.writes}
    block = s.block(last.name)
    places = [n.indices for n in walk(block.body) if isinstance(n, BufferLoad) and id(n.buffer) in sums]
    used = [axis for axis, it in enumerate(block.iter_vars) if uses(places, it.var)]
    lead = used[-1] + 1 if used else 0
    while lead < len(block.iter_vars) and not _are_adjacent(block, block.iter_vars[lead:]):
        lead += 1
    loops = s.get_loops(last.name)
    extents = [s.extent(loop) for loop in loops[lead:]]
    if not 0 < lead < len(loops) or not all(isinstance(e, int) for e in extents) or prod(extents) < 2 * lanes:
        tile_elementwise(s, last.name, lanes)
        return
    _, lane = s.split(s.fuse(*loops[lead:]), [None, lanes])
    s.vectorize(lane)
    s.parallel(s.fuse(*loops[:lead]))
