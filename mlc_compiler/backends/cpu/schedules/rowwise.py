"""Functions without a matrix product: normalizations, softmax, element-wise chains, gathers."""

from __future__ import annotations

from ....ir import dtype as dt
from ....ir.expr import BinaryOp, Var, is_const
from ....ir.visitor import walk
from ....schedules.rule import Rule, analyse, contiguous_axis, inline_intermediates
from ....target import Target
from ....tir.nodes import Block, BufferStore, For, PrimFunc, While
from ....tir.schedule import Schedule
from ..machine import Cpu
from .lanes import reduce_in_lanes

SQUARE = 8  # rows at a power-of-two stride map to the same L1 set, which has at least 8 ways


class RowReduction(Rule):
    """Chains of blocks of which some reduce the last axis: rows in parallel, SIMD lanes along a row."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or not blocks.reductions or blocks.last.is_reduction:
            return None
        s = Schedule(func)
        if not s.get_loops(blocks.last.name):
            return None
        row = _rows_of(s, blocks.last.name)
        for block in reversed(blocks.in_order[:-1]):
            s.compute_at(block.name, row)
        for block in blocks.reductions:
            if _is_of_floats(block):
                _reduce_row(s, block.name, target)
        s.parallel(row)
        for block in blocks.in_order:
            if not block.is_reduction:
                _vectorize_innermost(s, block.name, target, outer=row)
        return s


def _is_of_floats(block: Block) -> bool:
    """Whether a reduction has floats, of which LLVM makes no lanes, or other ones where the code around differs.

    With lanes of our own, a row has the same result in a call of one row and in one of many.
    """
    value = block.body.value if isinstance(block.body, BufferStore) else None
    return isinstance(value, BinaryOp) and dt.is_float(value.dtype)


def _reduce_row(s: Schedule, name: str, target: Target) -> None:
    """Reduce each lane of the innermost loop, then the lanes."""
    loop = s.get_loops(name)[-1]
    lanes, extent = Cpu.of(target).lanes(32), s.extent(loop)
    if not isinstance(extent, int) or extent < 2 * lanes:
        return
    for block in reduce_in_lanes(s, loop, lanes, axis=len(s.get_loops(name)) - 1):
        s.vectorize(s.get_loops(block)[-1])


def _rows_of(s: Schedule, name: str) -> Var:
    loops = s.get_loops(name)
    if len(loops) == 1:
        row, _ = s.split(loops[0], [1, None])
        return row
    return s.fuse(*loops[:-1])


class Elementwise(Rule):
    """Element-wise functions, copies and gathers: all loops but the SIMD lanes fused into one parallel loop.

    Strided reads, as of a transposition, are tiled in small squares.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or blocks.reductions:
            return None
        s = Schedule(func)
        inline_intermediates(s, [b.name for b in blocks.in_order[:-1]])
        for name in s.get_blocks():
            loops = s.get_loops(name)
            across = contiguous_axis(s.block(name))
            if across is not None and _tile_squares(s, loops, across):
                continue
            if loops:
                _vectorize_innermost(s, name, target)
                vectorized = len(s.get_loops(name)) > len(loops)
                outer = s.get_loops(name)[:-1] if vectorized else s.get_loops(name)
                s.parallel(s.fuse(*outer))
        return s


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


def _vectorize_innermost(s: Schedule, name: str, target: Target, outer: Var | None = None) -> None:
    """Vectorize the innermost loop; the last vector is masked when the extent does not divide.

    Blocks with inner loops of non-constant extent stay scalar: their lanes would need different trip counts.
    """
    loops = s.get_loops(name)
    inner = [n for n in walk(s.block(name).body) if isinstance(n, While | For)]
    if not loops or loops[-1] is outer or not all(isinstance(n, For) and is_const(n.extent) for n in inner):
        return
    extent = s.extent(loops[-1])
    lanes = Cpu.of(target).lanes(32)
    if not isinstance(extent, int) or extent < 2:
        return
    _, lane = s.split(loops[-1], [None, min(lanes, extent)])
    s.vectorize(lane)
