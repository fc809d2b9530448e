"""Schedule of chains with several reductions over axes before the last one: softmax and variance of columns."""

from __future__ import annotations

from ....ir.simplify import Analyzer
from ....ir.visitor import uses, walk
from ....schedules.rule import Blocks, TunableRule, analyse, choose, constant_extent, largest_divisor
from ....target import Target
from ....tir.calling import step_along
from ....tir.nodes import Block, BufferLoad
from ....tir.schedule import Schedule
from ..machine import Cpu

VECTORS = (1, 2, 4, 8)  # of columns per step


class ColumnChain(TunableRule):
    """Chains of blocks of which several reduce, where adjacent results read adjacent elements.

    Tiles of columns run in parallel; all blocks compute one tile, in SIMD lanes, before the next tile.
    Choice: the number of vectors in a tile.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or len(blocks.reductions) < 2 or not all(map(_reads_columns, blocks.reductions)):
            return None
        loops, kept = s.get_loops(blocks.last.name), _kept_axes(blocks)
        if not kept or len(loops) != len(blocks.last.iter_vars):
            return None
        *lead, column = (loops[axis] for axis in kept)
        inner = [loop for axis, loop in enumerate(loops) if axis not in kept]
        lanes = Cpu.of(target).lanes(32)
        tile, lane = s.split(column, [None, _width(s.extent(column), lanes, choose(s, VECTORS, 4))])
        s.reorder(*lead, tile, *([lane, *inner] if blocks.last.is_reduction else [*inner, lane]))
        for block in reversed(blocks.in_order[:-1]):
            s.compute_at(block.name, tile)
        if not all(_vectorize(s, block, skip=len(lead) + 1) for block in blocks.in_order):
            return None
        s.parallel(s.fuse(*lead, tile))
        return s


def _kept_axes(blocks: Blocks) -> list[int]:
    """The axes of the last block that were not reduced before it, columns last; [] if another axis is innermost."""
    last, sums = blocks.last, {id(w.buffer) for b in blocks.reductions for w in b.writes}
    if last.is_reduction:
        return [axis for axis, it in enumerate(last.iter_vars) if it.kind == "S"]
    places = [n.indices for n in walk(last.body) if isinstance(n, BufferLoad) and id(n.buffer) in sums]
    kept = [axis for axis, it in enumerate(last.iter_vars) if uses(places, it.var)]
    return kept if kept and kept[-1] == len(last.iter_vars) - 1 else []


def _width(extent: int, lanes: int, vectors: int) -> int:
    """Columns of a tile: whole vectors if these divide the columns, else any divisor that fills one, else masked."""
    if extent % lanes == 0:
        return lanes * largest_divisor(extent // lanes, vectors)
    divisor = largest_divisor(extent, vectors * lanes)
    return divisor if divisor >= lanes else min(vectors * lanes, extent)


def _vectorize(s: Schedule, block: Block, skip: int) -> bool:
    """Vectorize the columns of a tile; the reduced axes of a reduction are loops around them.

    False for a block that computes one element for all columns of a tile.
    """
    loops = s.get_loops(block.name)[skip:]
    inside = len(loops) - sum(it.kind == "R" for it in block.iter_vars)
    if inside == 0:
        return False
    if not block.is_reduction:
        s.vectorize(loops[-1])
        return True
    lane, reduced = loops[inside - 1], loops[inside:]
    s.reorder(*reduced, lane)
    for name in (s.decompose_reduction(block.name, reduced[0]), f"{block.name}_update"):
        s.vectorize(s.get_loops(name)[-1])
    return True


def _reads_columns(block: Block) -> bool:
    """Whether the elements that are reduced have stride 1 along the last axis of the result."""
    kinds = "".join(it.kind for it in block.iter_vars)
    columns = [it for it in block.iter_vars if it.kind == "S"][-1:]
    if not columns or "RS" in kinds or (constant_extent(columns[0].extent) or 0) < 2:
        return False
    reduced = [it.var for it in block.iter_vars if it.kind == "R"]
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and any(uses(n.indices, k) for k in reduced)]
    return bool(loads) and all(step_along(load, columns[0].var, Analyzer()) == 1 for load in loads)
