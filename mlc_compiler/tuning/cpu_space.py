"""Search space for any tensor function on a CPU: register tiling, parallel rows, SIMD lanes, partial sums."""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.cpu.schedules.lanes import reduce_in_lanes
from ..backends.cpu.schedules.padding import inline_or_keep, rows_in_lanes
from ..backends.cpu.schedules.panels import is_gathered, operands_by_column, pack
from ..ir.expr import Var
from ..schedules.rule import Blocks, accumulate_locally, analyse, choose, constant_extent, inline_intermediates
from ..tir.nodes import Block
from ..tir.schedule import Schedule
from .space import Space

LANES = (4, 8, 16, 32, 64)
PANELS = (16, 32, 64)  # columns of a panel into which an operand is copied
LARGEST_TILE, LARGEST_STEP = 64, 16  # maximum innermost factors of an axis and of a reduction
UNROLLED = (1, 16, 64, 256)  # candidates for the maximum number of unrolled iterations
PARTS = (2, 4, 8, 16, 32)  # number of parallel parts of a reduction without a loop around it


@dataclass(frozen=True)
class CpuSketches(Space):
    """Schedules by the structure of the function; see the functions of this module.

    A single reduction is tiled, as for a matmul or a convolution (``_tiles``), or vectorized along the reduction
    (``_along``), or split into parallel parts (``_parts``). For several reductions, as in a softmax, the
    rows run in parallel (``_rows``), or each matmul is tiled separately (``_each``); without reductions, all axes but
    the vector lanes run in parallel (``_lanes``). Operands of tiled reductions may be copied into panels first.
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
            several[choose(s, range(len(several)), int(any(map(_is_product, blocks.reductions))))](s, blocks)
        else:
            single = (_tiles, _along, _parts)
            single[choose(s, range(len(single)), 0)](s, blocks)
        return s


# -- one reduction ------------------------------------------------------------------------------------------------


def _tiles(s: Schedule, blocks: Blocks) -> None:
    """Tile a reduction: outer tiles in parallel, accumulators in registers and initialized before the reduction.

    The epilogue runs when a tile is complete; blocks before the reduction are inlined or computed beforehand.
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
    _pack_operands(s, anchor)
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


def _pack_operands(s: Schedule, anchor: str) -> None:
    """Copy operands into panels of columns: by default those of which adjacent columns are apart in memory."""
    block = s.block(anchor)
    column = [it.var for it in block.iter_vars if it.kind == "S"][-1]
    extent = constant_extent(next(it.extent for it in block.iter_vars if it.var is column)) or 1
    for load in operands_by_column(block, column):
        width = choose(s, (0, *PANELS), PANELS[0] if is_gathered(load, column) else 0)
        if width and extent % width == 0:
            pack(s, anchor, load, column, width)


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
    """Vectorize the innermost loop of a block; unroll loops around it, innermost first, up to ``limit`` iterations.

    depth: number of outer loops that stay unchanged.
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
    """Parallelize the axes and reduce each element of the result in SIMD lanes; schedule other blocks separately."""
    anchor = blocks.reductions[0].name
    axes, reductions = _axes(s, anchor), _reductions(s, anchor)
    s.reorder(*axes, *reductions)
    row = s.fuse(*axes)
    if len(reductions) == 1:
        _sum_in_lanes(s, anchor, choose(s, (0, *LANES), 16))
    s.parallel(row)
    _others(s, blocks)


def _parts(s: Schedule, blocks: Blocks) -> None:
    """Split the reduction into parallel parts, each reduced in SIMD lanes, then sum these; other blocks separately."""
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
    """Schedule each of the blocks that are not reductions separately."""
    for block in blocks.in_order:
        if not block.is_reduction:
            _lanes(s, block.name)


# -- several reductions, or none ----------------------------------------------------------------------------------


def _rows(s: Schedule, blocks: Blocks) -> None:
    """Compute all blocks row by row, rows in parallel; reductions in SIMD lanes, other blocks vectorized."""
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
    """Schedule each matmul as tiles, and the row-wise blocks between them (e.g. softmax) over whole rows."""
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
    """Schedule adjacent blocks over whole rows, in parallel; trailing reductions separately."""
    while chain and chain[-1].is_reduction:
        s.parallel(s.fuse(*_axes(s, chain.pop().name)))
    if chain:
        _rows(s, Blocks(tuple(chain)))


def _is_product(block: Block) -> bool:
    """Whether a reduction reads several buffers besides the ones that it writes, such as a matmul."""
    written = {id(w.buffer) for w in block.writes}
    return len({id(r.buffer) for r in block.reads} - written) > 1


def _lanes(s: Schedule, name: str) -> None:
    """Vectorize the last axis of a block; fuse and parallelize its other loops."""
    rows_in_lanes(s, name, choose(s, LANES, 16))


def _vectorize(s: Schedule, name: str, width: int) -> None:
    loop = s.get_loops(name)[-1]
    extent = s.extent(loop)
    if isinstance(extent, int) and extent > 1:
        s.vectorize(s.split(loop, [None, min(width, extent)])[1])


def _sum_in_lanes(s: Schedule, name: str, lanes: int) -> None:
    """Reduce the innermost loop in partial sums, one per lane, then sum the lanes; 0 leaves the reduction unchanged."""
    loops = s.get_loops(name)
    extent = s.extent(loops[-1])
    if not lanes or not isinstance(extent, int) or extent < 2 * lanes:
        return
    axis = sum(it.kind == "S" for it in s.block(name).iter_vars)
    for block in reduce_in_lanes(s, loops[-1], lanes, axis=axis):
        s.vectorize(s.get_loops(block)[-1])
