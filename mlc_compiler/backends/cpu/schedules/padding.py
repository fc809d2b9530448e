"""Blocks with conditions, such as padding, before a matmul or convolution: inlined, or computed beforehand."""

from __future__ import annotations

from ....ir.expr import Call, Select
from ....ir.visitor import walk
from ....schedules.rule import choose
from ....tir.nodes import Block
from ....tir.schedule import Schedule


def inline_or_keep(s: Schedule, names: list[str]) -> list[str]:
    """Inline blocks, or keep those with conditions (a choice for each). Returns the names of the kept blocks."""
    kept = []
    for name in names:
        if _has_condition(s.block(name)) and choose(s, (0, 1), 0):
            kept.append(name)
        else:
            s.compute_inline(name)
    return kept


def rows_in_lanes(s: Schedule, name: str, width: int) -> None:
    """Vectorize the last axis of a block to ``width`` lanes; fuse the other loops and run them in parallel."""
    *outer, last = s.get_loops(name)
    extent = s.extent(last)
    if isinstance(extent, int) and extent > 1:
        step, lane = s.split(last, [None, min(width, extent)])
        s.vectorize(lane)
        outer.append(step)
    s.parallel(s.fuse(*(outer or [last])))


def _has_condition(block: Block) -> bool:
    return any(isinstance(n, Select) or (isinstance(n, Call) and n.op == "if_then_else") for n in walk(block.body))
