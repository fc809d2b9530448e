"""Schedule of matmuls with a weight: register tiles over a packed weight layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ....ir import dtype as dt
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
    single_matmul,
)
from ....target import Target
from ....tir.nodes import Block, Buffer, BufferLoad, PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from .panels import operands_by_column, pack
from .prefetching import prefetch_weight
from .register_tiles import check_elementwise, split_depth, sum_in_registers, unroll_around_lanes
from .row_tiles import row_tiles, tile_rows
from .streams import divide_columns, even_streams

UNROLLED_REDUCTION = 8
UNROLLINGS = (1, 2, 4, UNROLLED_REDUCTION, 16)
VECTORS = (1, 2, 4)  # of columns in a tile
MAX_FACTORED_HEIGHT = 4  # of tiles whose scales are factored out of the inner sum: few rows share a weight
FEW_ROWS = 12
READERS = 4  # tiles of rows that read a copy of the right operand, at least


class Matmul(TunableRule):
    """``x[m, k] * w[n, k]`` or ``x[m, k] * w[k, n]`` with element-wise blocks around it.

    Weights, or their codes and scales, are stored in tiles of ``2 x SIMD width`` columns. The rows are
    partitioned into tiles of decreasing height, so that no tile is guarded. Column tiles run in parallel. Choices: the
    columns and rows of a tile, the unrolled steps of the reduction, whether a right operand that keeps its layout is
    copied into tiles.
    """

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        func, cpu = s.func, Cpu.of(target)
        blocks = analyse(func)
        matched = single_matmul(blocks) if blocks else None
        if blocks is None or matched is None or _packing_dominates(func, matched):
            return None
        columns = choose(s, VECTORS, 2) * cpu.lanes(32)
        heights = _heights(s, cpu)
        unrolled = choose(s, UNROLLINGS, UNROLLED_REDUCTION)
        epilogue = inline_around(s, blocks, matched)
        weights = _weight_parameters(s, matched)
        for weight, transposed in weights:
            s.transform_layout(matched.block.name, weight.name, column_tiles(columns, transposed))
        last = accumulate_locally(s, matched.block.name, epilogue)
        _pack_right(s, matched, columns, heights[0], cpu)
        check_elementwise(s.block(matched.block.name), s.block(last))
        streamed = _streamed([weight for weight, _ in weights], matched)
        streams = _streams_of_a_row(matched, columns, cpu) if streamed else 1
        if streams > 1:
            divide_columns(s, matched.block.name, last, streams)
            heights = (streams,)
        tile = _Tile(columns, unrolled, streamed, streams > 1)
        tile_rows(s, matched.block.name, last, heights, partial(_tile_part, s, tile=tile, cpu=cpu))
        return s


@dataclass(frozen=True)
class _Tile:
    """Parameters that do not depend on the rows: columns of a tile, unrolled steps, the weight to prefetch.

    are_streams: whether the rows of a tile are streams of the weight for one row.
    """

    columns: int
    unrolled: int
    prefetched: str | None
    are_streams: bool


def _heights(s: Schedule, cpu: Cpu) -> tuple[int, ...]:
    tables = row_tiles(cpu)
    tallest = choose(s, [table[0] for table in tables], tables[0][0])
    return next(table for table in tables if table[0] == tallest)


def _packing_dominates(func: PrimFunc, matched: MatmulBlock) -> bool:
    """Whether packing the right operand, an activation, in every call would cost more than multiplying a few rows."""
    extents = {id(it.var): constant_extent(it.extent) for it in matched.block.iter_vars}
    rows = [extents[id(row)] for row in matched.rows]
    activations = {id(func.buffers[i]) for i in func.attrs.get("activations", ())}
    few = all(e is not None for e in rows) and prod(e for e in rows if e) <= FEW_ROWS
    return few and not matched.transposed and id(matched.weight) in activations


def inline_around(s: Schedule, blocks: Blocks, matched: MatmulBlock) -> list[str]:
    """Inline the producers of the operands; returns the names of the blocks after the matmul."""
    names = [b.name for b in blocks.in_order]
    at = names.index(matched.block.name)
    for name in names[:at]:
        s.compute_inline(name)
    return names[at + 1 :]


def _weight_parameters(s: Schedule, matched: MatmulBlock) -> list[tuple[Buffer, bool]]:
    """The matrices among the parameters that the matmul reads by column, and whether columns are their last axis.

    These are weights, codes, scales. [K, N] keeps its layout if it is an activation, and in functions that no graph
    function calls, whose callers pass it; ``_pack_right`` may copy it in each call.
    """
    block = s.block(matched.block.name)
    parameters = {id(p) for p in s.func.buffers} - {id(w.buffer) for w in block.writes}
    kept = {id(s.func.buffers[i]) for i in s.func.attrs.get("activations", range(len(s.func.buffers)))}
    found: dict[int, tuple[Buffer, bool]] = {}
    for load in walk(block.body):
        if not isinstance(load, BufferLoad) or len(load.indices) != 2 or id(load.buffer) not in parameters:
            continue
        first, last = load.indices
        transposed = first is matched.reduction and last is matched.column and id(load.buffer) not in kept
        if first is matched.column or transposed:
            found[id(load.buffer)] = (load.buffer, transposed)
    return list(found.values())


def _pack_right(s: Schedule, matched: MatmulBlock, columns: int, height: int, cpu: Cpu) -> None:
    """Copy a right operand [K, N] that keeps its layout into column tiles, by default as ``_pays`` says."""
    block = s.block(matched.block.name)
    column = [it.var for it in block.iter_vars if it.kind == "S"][-1]
    loads = [load for load in operands_by_column(block, column) if load.buffer is matched.weight]
    width = constant_extent(next(it.extent for it in block.iter_vars if it.var is column))
    if not matched.transposed or not matched.rows or not loads or width is None or width % columns:
        return
    if choose(s, (0, 1), int(_pays(matched, height, cpu))):
        pack(s, block.name, loads[0], column, columns)


def _pays(matched: MatmulBlock, height: int, cpu: Cpu) -> bool:
    """Whether copying the right operand takes less time than it saves.

    It saves misses where a step of the reduction goes to another row of a matrix larger than the L2 cache, and it costs
    as much as a tile of rows or more.
    """
    extents = {id(it.var): constant_extent(it.extent) for it in matched.block.iter_vars}
    rows, columns, depth = (extents[id(v)] for v in (*matched.rows[-1:], matched.column, matched.reduction))
    if rows is None or columns is None or depth is None:
        return False
    return rows >= READERS * height and columns * depth * dt.nbytes(matched.weight.dtype) > cpu.l2_bytes


def _streamed(weights: Sequence[Buffer], matched: MatmulBlock) -> str | None:
    """The weight whose tiles are prefetched: one of constant size, without scales."""
    alone = len(weights) == 1 and weights[0] is not matched.activation
    return weights[0].name if alone and all(constant_extent(size) for size in weights[0].shape) else None


def _streams_of_a_row(matched: MatmulBlock, columns: int, cpu: Cpu) -> int:
    """Streams of the weight for a single row, which are tiled like rows; 1 for several rows."""
    extents = {id(it.var): constant_extent(it.extent) for it in matched.block.iter_vars}
    width = extents[id(matched.column)] or 0
    if any(extents[id(row)] != 1 for row in matched.rows) or width % columns:
        return 1
    return even_streams(width // columns, cpu)


def _tile_part(s: Schedule, matmul: str, last: str, row: Var, height: int, *, tile: _Tile, cpu: Cpu) -> Var:
    """Schedule one part: parallel column tiles, row tiles, then the reduction over register accumulators."""
    group = _quantization_group(s.block(matmul)) if height <= MAX_FACTORED_HEIGHT else None
    sums = s.factor_reduction(matmul, group) if group else None
    *outer_rows, row, column, reduction = s.get_loops(matmul)
    row_tile, row_in = s.split(row, [None, height])
    column_tile, lane = s.split(column, [None, tile.columns])
    step, *inner = [reduction] if sums else split_depth(s, reduction, tile.unrolled)
    of_step = [row_in, *inner] if tile.are_streams else [*inner, row_in]
    s.reorder(column_tile, *outer_rows, row_tile, step, *of_step, lane)
    s.reverse_compute_at(last, row_tile)
    sum_in_registers(s, matmul, step)
    if tile.prefetched and not sums:
        reads = [r.buffer.name for r in s.block(matmul).reads]
        prefetch_weight(s, matmul, reads.index(tile.prefetched), step, cpu, row_in if tile.are_streams else None)
    for loop in (*inner, row_in):
        s.unroll(loop)
    if sums:
        s.compute_at(sums, step)
        *rows, columns_loop, position = s.get_loops(sums)[len(outer_rows) + 3 :]
        outer, unrolled = s.split(position, [None, tile.unrolled])
        s.reorder(outer, unrolled, *rows, columns_loop)
        sum_in_registers(s, sums, outer)
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
