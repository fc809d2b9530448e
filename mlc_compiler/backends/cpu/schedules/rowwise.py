"""Schedules of functions without a matmul: normalizations, softmax, element-wise chains, gathers."""

from __future__ import annotations

from ....ir import dtype as dt
from ....ir.expr import BinaryOp, Var, is_const
from ....ir.visitor import walk
from ....schedules.rule import Blocks, TunableRule, analyse, choose, contiguous_axis, inline_intermediates
from ....target import Target
from ....tir.nodes import Block, BufferStore, For, While
from ....tir.schedule import Schedule
from ..machine import Cpu
from .lanes import reduce_in_lanes

VECTORS = (1, 2, 4)  # of lanes in a vectorized loop
SQUARE = 8  # rows at a power-of-two stride map to the same L1 set, which has at least 8 ways


class RowReduction(TunableRule):
    """Chains of blocks of which some reduce the last axis: rows in parallel, SIMD lanes along a row.

    Choices: the vectors of lanes of a reduction, and of a step of the other blocks.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or not blocks.reductions or blocks.last.is_reduction:
            return None
        if not s.get_loops(blocks.last.name):
            return None
        row = _rows_of(s, blocks.last.name)
        for block in reversed(blocks.in_order[:-1]):
            s.compute_at(block.name, row)
        _reduce_rows(s, blocks, target)
        s.parallel(row)
        width = choose(s, VECTORS, 1) * Cpu.of(target).lanes(32)
        for block in blocks.in_order:
            if not block.is_reduction:
                _vectorize_innermost(s, block.name, width, outer=row)
        return s


def is_of_floats(block: Block) -> bool:
    """Whether a block reduces floats, which LLVM does not vectorize, or not always in the same way.

    With explicit lanes, a row has the same result in a call of one row and in one of many.
    """
    value = block.body.value if isinstance(block.body, BufferStore) else None
    return isinstance(value, BinaryOp) and dt.is_float(value.dtype)


def _reduce_rows(s: Schedule, blocks: Blocks, target: Target) -> None:
    """Reduce each lane of the innermost loops of reductions of floats, then the lanes."""
    lanes = Cpu.of(target).lanes(32)
    long = [b.name for b in blocks.reductions if is_of_floats(b) and _is_longer(s, b.name, 2 * lanes)]
    if not long:
        return
    lanes *= choose(s, VECTORS, 1)
    for name in long:
        loops = s.get_loops(name)
        if _is_longer(s, name, 2 * lanes):
            for block in reduce_in_lanes(s, loops[-1], lanes, axis=len(loops) - 1):
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
