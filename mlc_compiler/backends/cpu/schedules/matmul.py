"""Schedule of matrix products with a weight: register tiles over a packed weight layout."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ....ir.expr import BinaryOp, IntImm, Var
from ....ir.visitor import walk
from ....schedules.rule import (
    Blocks,
    MatmulBlock,
    TunableRule,
    accumulate_locally,
    analyse,
    choose,
    column_tiles,
    constant_extent,
    match_matmul,
)
from ....target import Target
from ....tir.nodes import Block, Buffer, BufferLoad, PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from .register_tiles import check_elementwise, split_depth, static_heights, sum_in_registers, unroll_around_lanes

UNROLLED_REDUCTION = 8
UNROLLINGS = (1, 2, 4, UNROLLED_REDUCTION, 16)
VECTORS = (1, 2, 4)  # of columns in a tile
MAX_FACTORED_HEIGHT = 4  # of tiles whose scales are factored out of the inner sum: few rows share a weight
FEW_ROWS = 12
ROW_TILES_WIDE = ((12, 4, 1), (8, 4, 1), (6, 2, 1), (4, 1), (16, 4, 1), (24, 4, 1))  # 12 rows x 2 vectors of sums
ROW_TILES_NARROW = ((4, 1), (6, 2, 1), (3, 1), (2, 1), (8, 4, 1), (12, 4, 1))  # 4 rows x 2 vectors in 16 registers


class Matmul(TunableRule):
    """``x[m, k] * w[n, k]`` or ``x[m, k] * w[k, n]`` with element-wise blocks around it.

    Weights ``w[n, k]``, or their codes and scales, are stored in tiles of ``2 x SIMD width`` columns. The rows are
    partitioned into tiles of decreasing height, so that no tile is guarded. Column tiles run in parallel. Choices: the
    columns and rows of a tile, the unrolled steps of the reduction.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        func, cpu = s.func, Cpu.of(target)
        blocks = analyse(func)
        matched = _single_matmul(blocks) if blocks else None
        if blocks is None or matched is None or _packing_dominates(func, matched):
            return None
        columns = choose(s, VECTORS, 2) * cpu.lanes(32)
        heights = _heights(s, cpu)
        unrolled = choose(s, UNROLLINGS, UNROLLED_REDUCTION)
        epilogue = _inline_around(s, blocks, matched)
        for weight in _weight_parameters(s, matched):
            s.transform_layout(matched.block.name, weight.name, column_tiles(columns))
        last = accumulate_locally(s, matched.block.name, epilogue)
        check_elementwise(s.block(matched.block.name), s.block(last))
        _tile(s, matched, last, heights, _Tile(columns, unrolled))
        return s


@dataclass(frozen=True)
class _Tile:
    """Sizes of a tile that do not depend on the number of rows: columns, and unrolled steps of the reduction."""

    columns: int
    unrolled: int


def row_tiles(cpu: Cpu) -> tuple[tuple[int, ...], ...]:
    """Heights of tiles, those that fill the registers first; in each a tall one, and others for rows that are left."""
    return ROW_TILES_WIDE if cpu.vector_registers >= 32 else ROW_TILES_NARROW


def _heights(s: Schedule, cpu: Cpu) -> tuple[int, ...]:
    tables = row_tiles(cpu)
    tallest = choose(s, [table[0] for table in tables], tables[0][0])
    return next(table for table in tables if table[0] == tallest)


def _single_matmul(blocks: Blocks) -> MatmulBlock | None:
    if len(blocks.reductions) != 1:
        return None
    return match_matmul(blocks.reductions[0])


def _packing_dominates(func: PrimFunc, matched: MatmulBlock) -> bool:
    """Whether packing the right side, an activation, at every call would cost more than the product of a few rows."""
    extents = {id(it.var): constant_extent(it.extent) for it in matched.block.iter_vars}
    rows = [extents[id(row)] for row in matched.rows]
    activations = {id(func.buffers[i]) for i in func.attrs.get("activations", ())}
    few = all(e is not None for e in rows) and prod(e for e in rows if e) <= FEW_ROWS
    return few and not matched.transposed and id(matched.weight) in activations


def _inline_around(s: Schedule, blocks: Blocks, matched: MatmulBlock) -> list[str]:
    """Inline the producers of the operands; returns the names of the blocks after the product."""
    names = [b.name for b in blocks.in_order]
    at = names.index(matched.block.name)
    for name in names[:at]:
        s.compute_inline(name)
    return names[at + 1 :]


def _weight_parameters(s: Schedule, matched: MatmulBlock) -> list[Buffer]:
    """The two-dimensional parameters that the product reads by column: weights, codes, scales."""
    block = s.block(matched.block.name)
    parameters = {id(p) for p in s.func.buffers} - {id(w.buffer) for w in block.writes}
    found: dict[int, Buffer] = {}
    for load in walk(block.body):
        by_column = isinstance(load, BufferLoad) and len(load.indices) == 2 and load.indices[0] is matched.column
        if by_column and id(load.buffer) in parameters:
            found[id(load.buffer)] = load.buffer
    return list(found.values())


def _tile(s: Schedule, matched: MatmulBlock, last: str, heights: tuple[int, ...], tile: _Tile) -> None:
    product = matched.block.name
    _in_order_of_product(s, product, last)
    rows = _row_loop(s, product, inner=2)
    last_rows = _row_loop(s, last, inner=1)
    extent = s.extent(rows)
    if isinstance(extent, int):
        heights, points = static_heights(extent, heights)
    else:
        points = [extent // h * h for h in heights[:-1]]
    parts, suffixes = s.partition([rows, last_rows], points) if len(heights) > 1 else ([[rows, last_rows]], [""])
    outer = [
        _tile_part(s, product + suffix, last + suffix, row, height, tile)
        for (row, _), suffix, height in zip(parts, suffixes, heights, strict=True)
    ]
    if len(outer) > 1:
        s.merge(*outer)


def _in_order_of_product(s: Schedule, product: str, last: str) -> None:
    """Reorder the loops of the last block to the axes of the product that it reads; other loops are outermost."""
    accumulated = s.block(product).writes[0].buffer
    load = next(n for n in walk(s.block(last).body) if isinstance(n, BufferLoad) and n.buffer is accumulated)
    axes = {id(index): axis for axis, index in enumerate(load.indices)}
    loops, variables = s.get_loops(last), s.block(last).iter_vars
    if len(loops) != len(variables):
        return
    pairs = zip(loops, variables, strict=True)
    wide = [(axes.get(id(it.var), -1), loop) for loop, it in pairs if s.extent(loop) != 1]
    if wide:
        s.reorder(*(loop for _, loop in sorted(wide, key=lambda pair: pair[0])))


def _row_loop(s: Schedule, block: str, inner: int) -> Var:
    """The loop over rows to tile: the last one of extent other than 1, fused with the row loops inside it.

    inner: number of innermost loops that are not over rows. A vector has one row.
    """
    loops = s.get_loops(block)
    rows = loops[:-inner]
    if not rows:
        return s.split(loops[0], [1, None])[0]
    wide = [i for i, loop in enumerate(rows) if s.extent(loop) != 1]
    return s.fuse(*rows[wide[-1] if len(wide) > 1 else 0 :])


def _tile_part(s: Schedule, product: str, last: str, row: Var, height: int, tile: _Tile) -> Var:
    """Schedule one part: parallel column tiles, row tiles, then the reduction over register accumulators."""
    group = _quantization_group(s.block(product)) if height <= MAX_FACTORED_HEIGHT else None
    partial = s.factor_reduction(product, group) if group else None
    *outer_rows, row, column, reduction = s.get_loops(product)
    row_tile, row_in = s.split(row, [None, height])
    column_tile, lane = s.split(column, [None, tile.columns])
    step, *inner = [reduction] if partial else split_depth(s, reduction, tile.unrolled)
    s.reorder(column_tile, *outer_rows, row_tile, step, *inner, row_in, lane)
    s.reverse_compute_at(last, row_tile)
    sum_in_registers(s, product, step)
    for loop in inner:
        s.unroll(loop)
    if partial:
        s.compute_at(partial, step)
        *rows, columns_loop, position = s.get_loops(partial)[len(outer_rows) + 3 :]
        outer, unrolled = s.split(position, [None, tile.unrolled])
        s.reorder(outer, unrolled, *rows, columns_loop)
        sum_in_registers(s, partial, outer)
        s.unroll(unrolled)
    unroll_around_lanes(s, last, skip=len(outer_rows) + 2)
    s.parallel(column_tile)
    return column_tile


def _quantization_group(block: Block) -> int | None:
    """Number of consecutive weights that share a scale: largest divisor of the reduction index in loads, or None."""
    reduction = block.iter_vars[-1]
    extent = constant_extent(reduction.extent) or 0
    divisors = {
        n.b.value
        for load in walk(block.body)
        if isinstance(load, BufferLoad)
        for n in walk(load.indices)
        if isinstance(n, BinaryOp) and n.op == "//" and n.a is reduction.var and isinstance(n.b, IntImm)
    }
    whole = [d for d in divisors if extent % d == 0 and d % UNROLLED_REDUCTION == 0]
    return max(whole, default=None)
