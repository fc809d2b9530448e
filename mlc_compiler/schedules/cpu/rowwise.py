"""Functions without a matrix product: normalizations, softmax, element-wise chains, gathers."""

from __future__ import annotations

from ...ir.expr import Var, is_const
from ...ir.visitor import walk
from ...target import Target
from ...tir.nodes import For, PrimFunc, While
from ...tir.schedule import Schedule, ScheduleError
from ..rule import Blocks, Rule, analyse, is_reduction


class RowReduction(Rule):
    """Stages of which some reduce the last axis: a row at a time, rows over the team, SIMD lanes along them."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or not blocks.reductions or is_reduction(blocks.last):
            return None
        s = Schedule(func)
        if not s.get_loops(blocks.last.name):
            return None
        row = _rows_of(s, blocks.last.name)
        for block in reversed(blocks.in_order[:-1]):
            s.compute_at(block.name, row)
        s.parallel(row)
        for block in blocks.in_order:
            if not is_reduction(block):
                _vectorize_innermost(s, block.name, target, outer=row)
        return s


def _rows_of(s: Schedule, name: str) -> Var:
    loops = s.get_loops(name)
    if len(loops) == 1:
        row, _ = s.split(loops[0], [1, None])
        return row
    return s.fuse(*loops[:-1])


class Elementwise(Rule):
    """Element-wise functions, copies and gathers: one loop over all but the SIMD lanes, over the team."""

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks = analyse(func)
        if blocks is None or blocks.reductions:
            return None
        s = Schedule(func)
        _inline_intermediates(s, blocks)
        for name in s.get_blocks():
            loops = s.get_loops(name)
            if loops:
                _vectorize_innermost(s, name, target)
                vectorized = len(s.get_loops(name)) > len(loops)
                outer = s.get_loops(name)[:-1] if vectorized else s.get_loops(name)
                s.parallel(s.fuse(*outer))
        return s


def _inline_intermediates(s: Schedule, blocks: Blocks) -> None:
    for block in blocks.in_order[:-1]:
        try:
            s.compute_inline(block.name)
        except ScheduleError:
            continue


def _vectorize_innermost(s: Schedule, name: str, target: Target, outer: Var | None = None) -> None:
    """Cut the innermost loop into SIMD vectors; the last one is masked when the extent does not divide.

    Not where lanes would run inner loops different numbers of times.
    """
    loops = s.get_loops(name)
    inner = [n for n in walk(s.block(name).body) if isinstance(n, While | For)]
    if not loops or loops[-1] is outer or not all(isinstance(n, For) and is_const(n.extent) for n in inner):
        return
    extent = s.extent(loops[-1])
    lanes = target.lanes(32)
    if not isinstance(extent, int) or extent < 2:
        return
    _, lane = s.split(loops[-1], [None, min(lanes, extent)])
    s.vectorize(lane)


class Fallback(Rule):
    """Anything else: the spatial loops of every nest over the worker team."""

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
    """Divide loops over the team, if they are nested directly and carry nothing."""
    try:
        s.parallel(s.fuse(*loops))
    except ScheduleError:
        return
