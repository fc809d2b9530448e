"""Schedule of bfloat16 matmuls that multiply pairs: the register tiles of ``row_tiles.py`` over operands in pairs."""

from __future__ import annotations

from functools import partial

from ....ir.expr import PrimExpr, Var, is_const
from ....schedules.rule import MatmulBlock, Rule, accumulate_locally, constant_extent, largest_divisor
from ....target import Target
from ....tir.index_map import IndexMap
from ....tir.nodes import Buffer, PrimFunc
from ....tir.schedule import Schedule
from ..instructions.bfloat16 import DOT2_PAIRS, LANES
from ..machine import Cpu
from ..passes.bfloat16_matmuls import match_pairs
from .prefetching import prefetch_weight
from .register_tiles import check_elementwise, unroll_around_lanes
from .row_tiles import row_tiles, tile_rows

PAIR = 2
UNROLLED_PAIRS = 8
VECTORS = 2  # of columns in a tile
ROWS_TOGETHER = 4  # rows of activations that are stored together: more streams fall into the same sets of the cache


class Bfloat16Matmul(Rule):
    """``x[m, k] * w[n, k]`` of bfloat16 numbers with float32 sums, and element-wise blocks around it.

    Weights are stored in tiles of columns, the two numbers of a pair next to each other. Activations that the function
    computes, such as those rounded by ``Bfloat16Matmuls``, are stored once for all tiles, in pieces of some rows and
    steps. Column tiles run in parallel.
    """

    def apply(self, func: PrimFunc, target: Target) -> Schedule | None:
        cpu = Cpu.of(target)
        matched = match_pairs(func, cpu)
        if matched is None or matched.activation.dtype != "bfloat16":
            return None
        s, matmul = Schedule(func), matched.block.name
        columns, length = (constant_extent(size) or 0 for size in matched.weight.shape)
        columns = LANES * largest_divisor(columns // LANES, VECTORS)
        unrolled = largest_divisor(length // PAIR, UNROLLED_PAIRS)
        made, epilogue = _inline_around(s, matched)
        s.transform_layout(matmul, matched.weight.name, lambda n, k: (n // columns, k // 2, n % columns, k % 2))
        if made and (layout := _rows_together(matched.activation, PAIR * unrolled)):
            s.transform_layout(matmul, matched.activation.name, layout)
        last = accumulate_locally(s, matmul, epilogue)
        check_elementwise(s.block(matmul), s.block(last))
        part = partial(_tile_part, s, weight=matched.weight.name, columns=columns, unrolled=unrolled, cpu=cpu)
        tile_rows(s, matmul, last, row_tiles(cpu)[0], part)
        if made:
            _in_vectors(s, made, PAIR * unrolled)
        return s


def _inline_around(s: Schedule, matched: MatmulBlock) -> tuple[str | None, list[str]]:
    """Inline the blocks before the matmul, except the one that stores its activations.

    Returns that block, None where the activations are a parameter, and the blocks after the matmul.
    """
    names = s.get_blocks()
    at = names.index(matched.block.name)
    writers = (n for n in names[:at] if any(w.buffer is matched.activation for w in s.block(n).writes))
    made = next(writers, None)
    for name in names[:at]:
        if name != made:
            s.compute_inline(name)
    return made, names[at + 1 :]


def _rows_together(activation: Buffer, steps: int) -> IndexMap | None:
    """Activations [..., rows, ..., K] in pieces of ``ROWS_TOGETHER`` rows and ``steps`` steps; None for few rows."""
    *rows, _ = activation.shape
    wide = [axis for axis, size in enumerate(rows) if not is_const(size, 1)]
    if not wide or (constant_extent(rows[wide[-1]]) or ROWS_TOGETHER) < ROWS_TOGETHER:
        return None
    *place, k = (Var(f"i{axis}") for axis in range(len(activation.shape)))
    row = place[wide[-1]]
    outer: list[PrimExpr] = [*place]
    outer[wide[-1]] = row // ROWS_TOGETHER
    return IndexMap((*place, k), (*outer, k // steps, row % ROWS_TOGETHER, k % steps))


def _in_vectors(s: Schedule, block: str, lanes: int) -> None:
    """Compute activations in parallel, each piece of a row as one vector."""
    *rows, k = s.get_loops(block)
    piece, lane = s.split(k, [None, lanes])
    pieces = s.fuse(*rows, piece)
    s.vectorize(lane)
    s.parallel(pieces)


def _tile_part(
    s: Schedule, matmul: str, last: str, row: Var, height: int, *, weight: str, columns: int, unrolled: int, cpu: Cpu
) -> Var:
    """Schedule one part: parallel column tiles, row tiles, then the pairs of the reduction over sums in registers."""
    *outer_rows, row, column, reduction = s.get_loops(matmul)
    row_tile, row_in = s.split(row, [None, height])
    column_tile, vector, lane = s.split(column, [None, columns // LANES, LANES])
    step, inner, pair = s.split(reduction, [None, unrolled, PAIR])
    s.reorder(column_tile, *outer_rows, row_tile, step, inner, row_in, vector, lane, pair)
    s.reverse_compute_at(last, row_tile)
    depth = len(outer_rows) + 2
    unroll_around_lanes(s, s.decompose_reduction(matmul, step), skip=depth)
    reads = [r.buffer.name for r in s.block(matmul).reads]
    prefetch_weight(s, matmul, reads.index(weight), step, cpu)
    s.tensorize(lane, DOT2_PAIRS.name)
    for loop in (inner, row_in, vector):
        s.unroll(loop)
    unroll_around_lanes(s, last, skip=depth)
    s.parallel(column_tile)
    return column_tile
