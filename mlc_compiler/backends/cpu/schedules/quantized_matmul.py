"""Schedule of matmuls with quantized weights; ``quantized/matmuls.py`` has the computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....ir.expr import PrimExpr, Var
from ....ir.visitor import walk
from ....schedules.rule import (
    Blocks,
    TunableRule,
    accumulate_locally,
    analyse,
    choose,
    column_tiles,
    constant_extent,
    largest_divisor,
    round_up,
    stored_buffer,
)
from ....target import Target
from ....tir.index_map import IndexMap
from ....tir.intrinsics import find_tensor_intrin
from ....tir.nodes import PRIVATE, Buffer, BufferLoad, PrimFunc
from ....tir.schedule import Schedule
from ..machine import Cpu
from ..passes.quantized_matmuls import PLAN
from .lanes import reduce_in_lanes
from .prefetching import prefetch_weight
from .streams import divide_columns, even_streams

PARTIAL_SUMS = 16  # lanes of a reduction over a group
GROUPS_TOGETHER = 8  # groups of a row that are quantized in one iteration of the parallel loop, at most
GROUPS_OF_EACH_THREAD = 256  # of a single row, at most: quantizing them takes as long as a barrier of many threads
ROWS_IN_REGISTERS, CHOSEN_ROWS = (1, 2, 4), (8, 32)  # candidates beside the planned numbers of rows
CHOSEN_STREAMS = (1, 2, 4)


@dataclass(frozen=True)
class _Tile:
    """Sizes of a tile, as in ``Plan``, and lanes of the instruction ``dot``."""

    dot: str
    rows: int
    rows_in_registers: int
    columns: int
    layout: str
    sides: int = 1
    streams: int = 1

    @property
    def lanes(self) -> int:
        return find_tensor_intrin(self.dot).operands[0].shape[0]

    @property
    def steps(self) -> int:
        """Steps of a group that one instruction takes."""
        *steps, _ = find_tensor_intrin(self.dot).operands[1].shape
        return steps[0] if steps else 1


class QuantizedMatmul(TunableRule):
    """Schedule of the functions that ``QuantizedMatmuls`` rewrote.

    Tiles of rows by columns run in parallel. In a tile, for each group, the weights are unpacked into registers, then
    multiplied with the digits of each row; the digits of a tile's rows are contiguous. Choices: the tile's sizes.
    """

    must_apply = True

    def schedule(self, s: Schedule, target: Target) -> Schedule | None:
        func = s.func
        blocks = analyse(func)
        given: Any = func.attrs.get(PLAN)
        if blocks is None or given is None:
            return None
        count, *_, columns, groups = map(s.extent, s.get_loops("product"))
        cpu = Cpu.of(target)
        tile = _chosen(s, _Tile(**given), count, columns, cpu)
        for block, weight in _quantized_parameters(blocks, func):
            s.transform_layout(block, weight.name, _tiled(tile, weight))
        names = [b.name for b in blocks.in_order]
        last = accumulate_locally(s, "product", names[names.index("product") + 1 :])
        row_group, prepared = prepare_activations(s)
        _store_by_tile(s, tile.rows)
        both, accumulated = _accumulate(s, last, tile, cpu)
        for block in (*prepared, *accumulated):  # last, since later steps would check concurrent loops again
            s.vectorize(s.get_loops(block)[-1])
        if count == 1 and groups <= GROUPS_OF_EACH_THREAD:
            _by_every_thread(s)
        else:
            s.parallel(row_group)
        s.parallel(both)
        return s


def _chosen(s: Schedule, plan: _Tile, count: int | PrimExpr, columns: int, cpu: Cpu) -> _Tile:
    """The planned tile, or one of another size; no higher than a constant number of rows needs.

    count: of rows. columns: of the weight, or of each of its sides. A single row is multiplied with several narrow
    tiles at once, see ``streams.py``.
    """
    most = count if isinstance(count, int) else max(plan.rows, CHOSEN_ROWS[-1])
    of_side = plan.columns // plan.sides
    wide = [c for c in (of_side // 2, of_side, 2 * of_side) if c and c % plan.lanes == 0 and columns % c == 0]
    together = _one_of(s, [c for c in ROWS_IN_REGISTERS if c <= most], min(plan.rows_in_registers, most))
    rows = _one_of(s, [c for c in CHOSEN_ROWS if c <= most], min(plan.rows, most))
    of_side = choose(s, wide, of_side)
    streams = 1
    if count == 1 and of_side == plan.lanes:
        tiles = columns // plan.lanes
        streams = _one_of(s, [c for c in CHOSEN_STREAMS if tiles % c == 0], even_streams(tiles, cpu))
    rows = round_up(rows, together)
    return replace(plan, columns=of_side * plan.sides, rows=rows, rows_in_registers=together, streams=streams)


def _one_of(s: Schedule, others: Sequence[int], default: int) -> int:
    """The default, or one of other candidates; no choice where there are none."""
    candidates = sorted({*others, default})
    return choose(s, candidates, default) if len(candidates) > 1 else default


def _tiled(tile: _Tile, weight: Buffer) -> IndexMap:
    """The layout with the codes or scales of a tile's columns next to each other, grouped by side."""
    factor, by_column = tile.columns // tile.sides, tile.layout == "NK"
    if tile.sides == 1:
        return column_tiles(factor, transposed=not by_column)
    columns = constant_extent(weight.shape[0 if by_column else 1])
    assert columns is not None
    width = columns // tile.sides

    def place(n: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, ...]:
        return (n % width // factor, k, n // width, n % factor)

    return IndexMap.from_func(place if by_column else lambda k, n: place(n, k))


def _quantized_parameters(blocks: Blocks, func: PrimFunc) -> list[tuple[str, Buffer]]:
    """Pairs (block, parameter that it reads) for the codes and the scales."""
    by_name = {b.name: b for b in blocks.in_order}
    parameters = {id(p) for p in func.buffers}

    def read(name: str) -> Buffer:
        block = by_name[name]
        loads = [n.buffer for n in walk(block.body) if isinstance(n, BufferLoad)]
        return next(b for b in loads if id(b) in parameters and b is not stored_buffer(block))

    return [(name, read(name)) for name in ("words", "product")]


def prepare_activations(s: Schedule) -> tuple[Var, list[str]]:
    """Quantize the activations in one loop over rows and chunks of groups; returns it and the blocks to vectorize."""
    row, group, *_ = s.get_loops("largest")
    chunk, group = s.split(group, [None, largest_divisor(s.extent(group), GROUPS_TOGETHER)])
    row_chunk = s.fuse(row, chunk)
    correction = _correction(s)
    for block in ("fixed", "digits", *correction, "step"):
        s.reverse_compute_at(block, group)
    partial: list[str] = []
    for block in ("fixed", "digits", "largest", *correction):
        _, _, *inside = s.get_loops(block)
        position = s.fuse(*inside)
        if block in ("largest", *correction):
            partial += reduce_in_lanes(s, position, PARTIAL_SUMS, axis=2)
    return row_chunk, ["fixed", "digits", *partial]


def _correction(s: Schedule) -> list[str]:
    """The block of corrections; none where the zero point is 0."""
    return [block for block in s.get_blocks() if block == "correction"]


def _by_every_thread(s: Schedule) -> None:
    """Let every thread quantize a single row, which takes less time than a barrier."""
    for block in ("digits", "step", *_correction(s)):
        s.set_scope(block, 0, PRIVATE)


def _store_by_tile(s: Schedule, rows: int) -> None:
    """Store the quantized activations of a tile of rows next to each other, group by group."""
    for block in ("step", *_correction(s)):
        s.transform_layout(block, block, lambda row, g: (row // rows, g, row % rows))
    s.transform_layout("digits", "digits", lambda row, g, d, step, b: (row // rows, g, row % rows, d, step, b))


def _accumulate(s: Schedule, last: str, tile: _Tile, cpu: Cpu) -> tuple[Var, list[str]]:
    """One loop over tiles, with sums over groups inside; returns it and the blocks to vectorize."""
    stream = [divide_columns(s, "product", last, tile.streams)] if tile.streams > 1 else []
    row, *side, column, group = (loop for loop in s.get_loops("product") if loop not in stream)
    row_tile, row_in = s.split(row, [None, tile.rows])
    row_in, row_here = s.split(row_in, [None, tile.rows_in_registers])
    column_tile, lane = s.split(column, [None, tile.columns // tile.sides])
    s.reorder(row_tile, column_tile, group, *stream, row_in, row_here, *side, lane)
    both = s.fuse(row_tile, column_tile)
    s.fuse(*s.get_loops(last)[: -1 - len(stream)])
    s.reverse_compute_at(last, both)
    init = s.decompose_reduction("product", group)
    s.set_scope("dots", 0, "local")
    s.compute_at("dots", row_in)
    s.compute_at("words", stream[0] if stream else group)
    if tile.steps > 1:
        s.transform_layout("words", "words", _steps_together(tile))
    start = _dots(s, row_in, tile)
    unrolled = 1 + len(side)
    *steps, lane = s.get_loops("words")[-unrolled - 1 :]
    vector, lane = s.split(lane, [None, tile.lanes])
    for loop in (vector, *steps, *s.get_loops(init)[-unrolled - 1 : -1], row_here, *side):
        s.unroll(loop)
    prefetch_weight(s, "words", 0, group, cpu, *stream)
    return both, [init, "product_update", last, start, "words"]


def _steps_together(tile: _Tile) -> IndexMap:
    """The words of a group and of a vector of columns next to each other, for an instruction of several steps."""
    lanes = tile.lanes
    if tile.sides == 1:
        return IndexMap.from_func(lambda g, step, n: (g, n // lanes, step, n % lanes))
    return IndexMap.from_func(lambda g, step, side, n: (g, side, n // lanes, step, n % lanes))


def _dots(s: Schedule, row_in: Var, tile: _Tile) -> str:
    """Tensorize the sums of one group for the rows in registers, fully unrolled; returns the init block."""
    *sums, column, step, byte = _inside(s, "dots", row_in)
    side, lane = s.split(column, [None, tile.lanes])
    step, *together = s.split(step, [None, tile.steps]) if tile.steps > 1 else [step]
    s.reorder(step, *sums, side, lane, *together, byte)
    start = s.decompose_reduction("dots", step)
    s.tensorize(lane, tile.dot)
    for loop in (*_inside(s, start, row_in)[:-1], *sums, side, step):
        s.unroll(loop)
    return start


def _inside(s: Schedule, block: str, loop: Var) -> list[Var]:
    """The loops of a block inside of a loop around it."""
    loops = s.get_loops(block)
    return loops[next(i for i, around in enumerate(loops) if around is loop) + 1 :]
