"""Schedules of any tensor function on a CPU: tiles in registers, rows in parallel, SIMD lanes, partial sums."""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.cpu.schedules.lanes import reduce_in_lanes
from ..backends.cpu.schedules.padding import inline_or_keep, rows_in_lanes
from ..ir.expr import Var
from ..schedules.rule import Blocks, accumulate_locally, analyse, choose, inline_intermediates
from ..tir.nodes import Block
from ..tir.schedule import Schedule
from .space import Space

LANES = (4, 8, 16, 32, 64)
LARGEST_TILE, LARGEST_STEP = 64, 16  # innermost factors of an axis and of a reduction
UNROLLED = (1, 16, 64, 256)  # iterations
PARTS = (2, 4, 8, 16, 32)  # of a reduction that has no loop around it


@dataclass(frozen=True)
class CpuSketches(Space):
    """Schedules by the function's structure; see the functions of this module for each.

    One reduction is tiled, as for a product or a convolution (``_tiles``), or has lanes along the reduction
    (``_along``), or is split into parts that run in parallel (``_parts``). Of several reductions, as in a softmax, the
    rows run in parallel (``_rows``), or products are tiled, each by itself (``_each``); without any, all axes but the
    lanes (``_lanes``).
    """

    def schedule(self, s: Schedule) -> Schedule | None:
        blocks = analyse(s.func)
        if blocks is None or any(len(s.get_loops(b.name)) != len(b.iter_vars) for b in blocks.in_order):
            return None
        if not blocks.reductions:
            inline_intermediates(s, [b.name for b in blocks.in_order[:-1]])
            for name in s.get_blocks():
                _lanes(s, name)
        elif len(blocks.reductions) > 1:
            several = (_rows, _each)
            several[choose(s, range(len(several)), 0)](s, blocks)
        else:
            single = (_tiles, _along, _parts)
            single[choose(s, range(len(single)), 0)](s, blocks)
        return s


# -- one reduction ------------------------------------------------------------------------------------------------


def _tiles(s: Schedule, blocks: Blocks) -> None:
    """Axes in parallel, middle and inner parts; sums of the inner parts in registers, initialised before the reduction.

    Blocks after the reduction are computed when a tile is done; blocks before it are inlined or computed beforehand.
    """
    anchor = blocks.reductions[0].name
    names = [b.name for b in blocks.in_order]
    at = names.index(anchor)
    before = inline_or_keep(s, names[:at])
    _tile(s, anchor, names[at + 1 :])
    for name in before:
        _lanes(s, name)


def _tile(s: Schedule, anchor: str, epilogue: list[str]) -> None:
    last = accumulate_locally(s, anchor, epilogue)
    axes, reductions = _axes(s, anchor), _reductions(s, anchor)
    parts = [_tiled(s, axis, 3, LARGEST_TILE if axis is axes[-1] else LARGEST_STEP) for axis in axes]
    steps = [_tiled(s, loop, 2, LARGEST_STEP) for loop in reductions]
    outer, middle, inner = (list(level) for level in zip(*parts, strict=True))
    first, second = (list(level) for level in zip(*steps, strict=True))
    s.reorder(*outer, *middle, *first, *second, *inner)
    s.reverse_compute_at(last, middle[-1])
    init = s.decompose_reduction(anchor, first[0])
    limit = choose(s, UNROLLED, 16)
    depth = len(outer) + len(middle)
    for name in (init, f"{anchor}_update", last):
        _unroll_around_lanes(s, name, depth + (len(first) if name == f"{anchor}_update" else 0), limit)
    s.parallel(s.fuse(*outer))


def _axes(s: Schedule, block: str) -> list[Var]:
    return _loops_of(s, block, "S")


def _reductions(s: Schedule, block: str) -> list[Var]:
    return _loops_of(s, block, "R")


def _loops_of(s: Schedule, block: str, kind: str) -> list[Var]:
    pairs = zip(s.get_loops(block), s.block(block).iter_vars, strict=True)
    return [loop for loop, variable in pairs if variable.kind == kind]


def _tiled(s: Schedule, loop: Var, parts: int, innermost: int) -> list[Var]:
    return s.split(loop, s.sample_perfect_tile(loop, parts, innermost))


def _unroll_around_lanes(s: Schedule, block: str, depth: int, limit: int) -> None:
    """Vectorize the innermost loop of a block; unroll loops around it, from the inside, up to ``limit`` iterations.

    depth: loops outside that stay.
    """
    inside = s.get_loops(block)[depth:]
    if not inside:
        return
    *loops, lane = inside
    count = 1
    for loop in reversed(loops):
        count *= s.extent(loop)
        if count > limit:
            break
        s.unroll(loop)
    if s.extent(lane) > 1:
        s.vectorize(lane)


def _along(s: Schedule, blocks: Blocks) -> None:
    """Axes in parallel, each element of the result reduced in lanes; other blocks separately."""
    anchor = blocks.reductions[0].name
    axes, reductions = _axes(s, anchor), _reductions(s, anchor)
    s.reorder(*axes, *reductions)
    row = s.fuse(*axes)
    if len(reductions) == 1:
        _sum_in_lanes(s, anchor, choose(s, (0, *LANES), 16))
    s.parallel(row)
    _others(s, blocks)


def _parts(s: Schedule, blocks: Blocks) -> None:
    """Parts of the reduction in parallel, each of them in lanes; then the sum of the parts. Other blocks separately."""
    anchor = blocks.reductions[0].name
    axes, reductions = _axes(s, anchor), _reductions(s, anchor)
    s.reorder(*axes, *reductions)
    part, _ = s.split(s.fuse(*reductions), [choose(s, PARTS, 8), None])
    partial = s.rfactor(part, 0)
    *axes, part, _ = s.get_loops(partial)
    s.reorder(part, *axes)
    _sum_in_lanes(s, partial, choose(s, (0, *LANES), 16))
    s.parallel(part)
    _others(s, blocks)


def _others(s: Schedule, blocks: Blocks) -> None:
    """The blocks that are no reductions, each by itself."""
    for block in blocks.in_order:
        if not block.is_reduction:
            _lanes(s, block.name)


# -- several reductions, or none ----------------------------------------------------------------------------------


def _rows(s: Schedule, blocks: Blocks) -> None:
    """All blocks of a row one after another, rows in parallel; reductions in lanes, other blocks vectorized."""
    loops = s.get_loops(blocks.last.name)
    row = s.fuse(*loops[:-1]) if len(loops) > 1 else s.split(loops[0], [1, None])[0]
    for block in reversed(blocks.in_order[:-1]):
        s.compute_at(block.name, row)
    if blocks.reductions:
        lanes = choose(s, (0, *LANES), 16)
        for block in blocks.reductions:
            _sum_in_lanes(s, block.name, lanes)
    width = choose(s, LANES, 16)
    s.parallel(row)
    for block in blocks.in_order:
        if not block.is_reduction:
            _vectorize(s, block.name, width)


def _each(s: Schedule, blocks: Blocks) -> None:
    """Products in tiles, each by itself; what lies between them in rows, as a softmax."""
    chain: list[Block] = []
    for block in blocks.in_order:
        if block.is_reduction and _is_product(block):
            _chain(s, chain)
            chain = []
            _tile(s, block.name, [])
        else:
            chain.append(block)
    _chain(s, chain)


def _chain(s: Schedule, chain: list[Block]) -> None:
    """Rows of neighbouring blocks in parallel; reductions after the last other block by themselves."""
    while chain and chain[-1].is_reduction:
        s.parallel(s.fuse(*_axes(s, chain.pop().name)))
    if chain:
        _rows(s, Blocks(tuple(chain)))


def _is_product(block: Block) -> bool:
    """Whether a reduction reads several buffers besides the one that it writes."""
    written = {id(w.buffer) for w in block.writes}
    return len({id(r.buffer) for r in block.reads} - written) > 1


def _lanes(s: Schedule, name: str) -> None:
    """Lanes of the last axis; the other loops in parallel, fused."""
    rows_in_lanes(s, name, choose(s, LANES, 16))


def _vectorize(s: Schedule, name: str, width: int) -> None:
    loop = s.get_loops(name)[-1]
    extent = s.extent(loop)
    if isinstance(extent, int) and extent > 1:
        s.vectorize(s.split(loop, [None, min(width, extent)])[1])


def _sum_in_lanes(s: Schedule, name: str, lanes: int) -> None:
    """Reduce each of some lanes of the innermost loop, then the lanes; 0 leaves the reduction as it is."""
    loops = s.get_loops(name)
    extent = s.extent(loops[-1])
    if not lanes or not isinstance(extent, int) or extent < 2 * lanes:
        return
    axis = sum(it.kind == "S" for it in s.block(name).iter_vars)
    for block in reduce_in_lanes(s, loops[-1], lanes, axis=axis):
        s.vectorize(s.get_loops(block)[-1])
