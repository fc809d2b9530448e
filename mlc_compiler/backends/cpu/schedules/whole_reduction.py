"""Schedule of reductions to one element: the sum, the maximum, the index of the maximum of a tensor."""

from __future__ import annotations

from math import prod

from ....schedules.rule import Blocks, Rule, analyse, constant_extent
from ....target import Target
from ....tir.nodes import Block, PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from .lanes import reduce_in_lanes
from .rowwise import is_one_operation

PARTS = 64  # at most, which are reduced in parallel; the number depends on the size only, as the order of a sum does
LEAST_VECTORS = 32  # in a part


class WholeReduction(Rule):
    """Chains of blocks whose reductions have one result each: parts of equal size in parallel, SIMD lanes in a part.

    The number of reduced elements has to be constant, and a multiple of a vector.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        blocks, lanes = analyse(func), Cpu.of(target).lanes(32)
        if blocks is None or not blocks.reductions or not _has_one_result(blocks):
            return None
        sizes = [_reduced_size(block) for block in blocks.reductions]
        if any(size is None or size % lanes or size < LEAST_VECTORS * lanes for size in sizes):
            return None
        s = Schedule(func)
        for block in blocks.in_order[:-1]:
            if not block.is_reduction and _number_of_results(block) != 1:
                s.compute_inline(block.name)
        for block, size in zip(blocks.reductions, sizes, strict=True):
            assert size is not None
            _reduce(s, block.name, size, lanes)
        return s


def _has_one_result(blocks: Blocks) -> bool:
    return _number_of_results(blocks.last) == 1 and all(_number_of_results(b) == 1 for b in blocks.reductions)


def _number_of_results(block: Block) -> int | None:
    """The number of elements that a block computes, None if it is not constant."""
    extents = [constant_extent(it.extent) for it in block.iter_vars if it.kind == "S"]
    return None if None in extents else prod(e for e in extents if e is not None)


def _reduced_size(block: Block) -> int | None:
    extents = [constant_extent(it.extent) for it in block.iter_vars if it.kind == "R"]
    in_order = "".join(it.kind for it in block.iter_vars).lstrip("S").count("S") == 0
    known = [e for e in extents if e is not None]
    return prod(known) if in_order and is_one_operation(block) and len(known) == len(extents) else None


def _reduce(s: Schedule, name: str, size: int, lanes: int) -> None:
    """Reduce one of the parts per iteration of a parallel loop; then the parts."""
    vectors = size // lanes
    limit = min(PARTS, vectors // LEAST_VECTORS)
    parts = next(p for p in range(limit, 0, -1) if vectors % p == 0)
    reduced = s.get_loops(name)[-sum(it.kind == "R" for it in s.block(name).iter_vars) :]
    whole = s.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    part, _ = s.split(whole, [parts, None])
    partial = s.rfactor(part, 0)
    for block in reduce_in_lanes(s, s.get_loops(partial)[-1], lanes, axis=1, nest=partial):
        s.vectorize(s.get_loops(block)[-1])
    s.parallel(s.get_loops(partial)[0])
