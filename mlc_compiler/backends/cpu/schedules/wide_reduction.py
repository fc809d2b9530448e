"""Schedule of reductions over several axes at once: group norms, means of images."""

from __future__ import annotations

from ....schedules.rule import Blocks, Rule, analyse
from ....target import Target
from ....tir.nodes import Block, PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from .rowwise import is_of_floats, tile_elementwise


class WideReduction(Rule):
    """Reductions over two or more axes whose innermost one fills SIMD lanes, or whose results are much smaller.

    Computes one reduction after the other, results in parallel, SIMD lanes along the innermost axis; then the last
    block, like ``Elementwise``. ``RowReduction`` would repeat the reductions for each row.
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
            tile_elementwise(s, blocks.last.name, lanes)
        return s


def _is_wide(block: Block, blocks: Blocks, lanes: int) -> bool:
    kinds = "".join(it.kind for it in block.iter_vars)
    if kinds.count("R") < 2 or "RS" in kinds or "S" not in kinds:
        return False
    fewer = block is not blocks.last and kinds.count("S") <= len(blocks.last.iter_vars) - 2
    return fewer or _fills_lanes(block, lanes)


def _fills_lanes(block: Block, lanes: int) -> bool:
    extent = getattr(block.iter_vars[-1].extent, "value", 0)
    return is_of_floats(block) and extent >= 2 * lanes


def _reduce(s: Schedule, block: Block, lanes: int) -> None:
    count = sum(it.kind == "S" for it in block.iter_vars)
    parts = [block.name]
    if _fills_lanes(block, lanes):
        _, lane = s.split(s.get_loops(block.name)[-1], [None, lanes])
        partial = s.rfactor(lane, count)
        parts.append(partial)
        for name in (s.decompose_reduction(partial, s.get_loops(partial)[count]), f"{partial}_update"):
            s.vectorize(s.get_loops(name)[-1])
    for name in parts:
        s.parallel(s.fuse(*s.get_loops(name)[:count]))
