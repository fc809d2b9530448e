"""Schedules of functions without a matmul: normalizations, softmax, element-wise chains, gathers."""

from __future__ import annotations

from ....ir import dtype as dt
from ....ir.expr import BinaryOp, Var, is_const
from ....ir.simplify import Analyzer
from ....ir.visitor import walk
from ....schedules.rule import Blocks, TunableRule, analyse, choose, contiguous_axis, inline_intermediates
from ....target import Target
from ....tir.calling import step_along
from ....tir.nodes import Block, BufferLoad, BufferStore, For, While
from ....tir.schedule import Schedule
from ..machine import Cpu
from .lanes import reduce_in_lanes

VECTORS = (1, 2, 4)  # of lanes in a vectorized loop
SQUARE = 8  # rows at a power-of-two stride map to the same L1 set, which has at least 8 ways


class RowReduction(TunableRule):
    """Chains of blocks of which some reduce the last axis: rows in parallel, SIMD lanes along a row.

    The last block may be a reduction of long rows. Choices: the vectors of lanes of a reduction, and of a step of the
    other blocks.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or not blocks.reductions or not s.get_loops(blocks.last.name):
            return None
        if blocks.last.is_reduction and not _reduces_long_rows(s, blocks.last, 2 * Cpu.of(target).lanes(32)):
            return None
        lanes, last = _lanes(s, blocks, target), blocks.last.name
        if blocks.last.is_reduction:
            _in_lanes(s, last, lanes, alone=True)
            row = s.get_loops(last)[-2]
        else:
            row = _rows_of(s, last)
        for block in reversed(blocks.in_order[:-1]):
            s.compute_at(block.name, row)
        for block in blocks.reductions:
            if block is not blocks.last:
                _in_lanes(s, block.name, lanes)
        if blocks.last.is_reduction:
            row = s.fuse(*s.get_loops(last)[:-1])
        s.parallel(row)
        width = choose(s, VECTORS, 1) * Cpu.of(target).lanes(32)
        for block in blocks.in_order:
            if not block.is_reduction:
                _vectorize_innermost(s, block.name, width, outer=row)
        return s


def _reduces_long_rows(s: Schedule, block: Block, least: int) -> bool:
    """Whether a block reduces its last axis only, which has at least ``least`` adjacent elements, and has others."""
    kinds = "".join(it.kind for it in block.iter_vars)
    if kinds.count("R") != 1 or not kinds.endswith("SR") or not is_one_operation(block):
        return False
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    steps = {step_along(load, block.iter_vars[-1].var, Analyzer()) for load in loads}
    return steps <= {0, 1} and _is_longer(s, block.name, least)


def is_one_operation(block: Block) -> bool:
    """Whether a reduction has one result, to which it applies one operation."""
    return isinstance(block.body, BufferStore) and isinstance(block.body.value, BinaryOp)


def is_of_floats(block: Block) -> bool:
    """Whether a block reduces floats, which LLVM does not vectorize, or not always in the same way.

    With explicit lanes, a row has the same result in a call of one row and in one of many.
    """
    value = block.body.value if isinstance(block.body, BufferStore) else None
    return isinstance(value, BinaryOp) and dt.is_float(value.dtype)


def _lanes(s: Schedule, blocks: Blocks, target: Target) -> int:
    """The lanes of the reductions, 0 if none is long enough."""
    lanes = Cpu.of(target).lanes(32)
    long = any(is_one_operation(b) and _is_longer(s, b.name, 2 * lanes) for b in blocks.reductions)
    return lanes * choose(s, VECTORS, 1) if long else 0


def _in_lanes(s: Schedule, name: str, lanes: int, alone: bool = False) -> None:
    """Reduce each lane of the innermost loop of a reduction, then the lanes, if the loop is long enough.

    alone: no other block is in the reduction's nest.
    """
    if not lanes or not is_one_operation(s.block(name)) or not _is_longer(s, name, 2 * lanes):
        return
    loops = s.get_loops(name)
    for block in reduce_in_lanes(s, loops[-1], lanes, axis=len(loops) - 1, nest=name if alone else None):
        s.vectorize(s.get_loops(block)[-1])


def _is_longer(s: Schedule, name: str, least: int) -> bool:
    """Whether the innermost loop of a block is known to have at least ``least`` iterations."""
    extent = s.extent(s.get_loops(name)[-1])
    return isinstance(extent, int) and extent >= least


def _rows_of(s: Schedule, name: str) -> Var:
    loops = s.get_loops(name)
    if len(loops) == 1:
        row, _ = s.split(loops[0], [1, None])
        return row
    return s.fuse(*loops[:-1])


class Elementwise(TunableRule):
    """Element-wise functions, copies and gathers: all loops but the SIMD lanes fused into one parallel loop.

    Strided reads, as of a transposition, are tiled in small squares. Choice: the vectors of a step.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or blocks.reductions:
            return None
        width = choose(s, VECTORS, 1) * Cpu.of(target).lanes(32)
        inline_intermediates(s, [b.name for b in blocks.in_order[:-1]])
        for name in s.get_blocks():
            tile_elementwise(s, name, width)
        return s


def tile_elementwise(s: Schedule, name: str, width: int) -> None:
    """Schedule the loops around one block, with vectors of ``width`` lanes."""
    loops = s.get_loops(name)
    across = contiguous_axis(s.block(name))
    if not loops or (across is not None and _tile_squares(s, loops, across)):
        return
    _vectorize_innermost(s, name, width)
    vectorized = len(s.get_loops(name)) > len(loops)
    outer = s.get_loops(name)[:-1] if vectorized else s.get_loops(name)
    s.parallel(s.fuse(*outer))


def _tile_squares(s: Schedule, loops: list[Var], across: int) -> bool:
    """Tile a nest in squares over the last axis and ``across``; False when one of them is too short."""
    extents = [s.extent(loops[axis]) for axis in (across, -1)]
    if not all(isinstance(e, int) and e >= SQUARE for e in extents):
        return False
    (far, near), (outer, lane) = (s.split(loops[axis], [None, SQUARE]) for axis in (across, -1))
    rest = [*loops[:across], far, *loops[across + 1 : -1], outer]
    s.reorder(*rest, near, lane)
    s.unroll(near)
    s.vectorize(lane)
    s.parallel(s.fuse(*rest))
    return True


def _vectorize_innermost(s: Schedule, name: str, width: int, outer: Var | None = None) -> None:
    """Vectorize ``width`` iterations of the innermost loop; the last ones are masked when the extent does not divide.

    Blocks with inner loops of non-constant extent stay scalar: their lanes would need different trip counts.
    """
    loops = s.get_loops(name)
    inner = [n for n in walk(s.block(name).body) if isinstance(n, While | For)]
    if not loops or loops[-1] is outer or not all(isinstance(n, For) and is_const(n.extent) for n in inner):
        return
    extent = s.extent(loops[-1])
    if not isinstance(extent, int) or extent < 2:
        return
    _, lane = s.split(loops[-1], [None, min(width, extent)])
    s.vectorize(lane)
