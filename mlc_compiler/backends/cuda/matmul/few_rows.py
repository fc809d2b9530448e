"""The kernel of a matmul with few rows (decode), which loads each weight once, directly to registers.

A tile of 16 columns is the left operand of ``mma.m16n8k16``, the rows are its right operand. The positions (K) that a
lane holds are consecutive in memory; their order in the instruction is free, as long as it is the same for both
operands. The warps of a block divide the depth, and add their sums in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import Call, IntImm, PrimExpr, Select, Var, cast, const, logical_and, minimum
from ....script import expand
from ....tir.nodes import ZEROED, Buffer, BufferLoad, Stmt, buffer, seq
from ..instructions.operands import SHORT
from ..machine import WARP, Gpu
from ..operators.nests import allocated, nest
from .division import BLOCKS_PER_MULTIPROCESSOR, SPAN_LANES, Division
from .few_rows_loops import multiply_rows
from .fused_matmul import FusedMatmul, Result
from .lane_weights import LaneWeights
from .prefetch import prefetches
from .staged import Staged
from .tiles import CHUNK, MMA_COLUMNS, MMA_ROWS

MAX_ROWS = MMA_COLUMNS
STEPS_TOGETHER = 2
TILES_TOGETHER = 4  # tiles whose weights a lane loads before it multiplies those of the first
SUMS_PADDING = 4  # floats: the rows that four lanes store together are in different banks
STAGED_BYTES = 32 << 10
MAX_STATISTICS = 2


def has_statistics_kernel(matmul: FusedMatmul) -> bool:
    """Whether ``FewRows`` can compute a matmul's statistics: for few rows of 16-bit activations in shared memory."""
    rows = matmul.rows.value if isinstance(matmul.rows, IntImm) else MAX_ROWS + 1
    few = rows <= MAX_ROWS and len(matmul.statistics) <= MAX_STATISTICS and matmul.dtype != "float32"
    return few and rows * matmul.depth * dt.nbytes(matmul.dtype) <= STAGED_BYTES


def _same(place: PrimExpr) -> PrimExpr:
    return place


@dataclass(eq=False)
class FewRows:
    """Sizes, buffers and expressions for the macros of ``few_rows_loops.py``.

    divides: whether the depth may be divided over blocks. d: tiles, parts, warps and steps. unit: consecutive positions
    of a lane in a step, whose weights are 16 bytes. span: positions of a step of one warp. partial: whether some warps
    have fewer steps. combined: sums per result. row_count: rows that have sums. block_results: results of a row of a
    block. results: maximum results per thread. staged: activations in shared memory that depend on statistics.
    stages_in_order: whether these are stored in the order of the weights.

    Shared by a thread block: sums [warps, rows, columns], padded against bank conflicts. For a divided depth: part_sums
    [parts, combined, rows, columns of results]; arrivals: how many parts of each block of columns are done; arrived:
    that number as a block finds it. The last block to arrive adds the parts in order.
    """

    matmul: FusedMatmul
    gpu: Gpu
    divides: bool = True

    def __post_init__(self) -> None:
        matmul = self.matmul
        self.weights = LaneWeights(matmul)
        self.unit = self.weights.unit
        self.span = SPAN_LANES * self.unit
        self.spans = -(-matmul.depth // self.span)
        prologue = bool(matmul.statistics)
        self.d = Division.of(matmul.columns, self.spans, self.gpu, prologue=prologue, divides=self.divides)
        together = min(STEPS_TOGETHER, TILES_TOGETHER // self.d.tiles)
        self.together = together if self.d.steps % together == 0 else 1
        self.partial = self.d.steps * self.d.warps * self.d.parts != self.spans
        self.fragments = self.unit // 4
        self.dtype, self.columns, self.rows = matmul.dtype, matmul.columns, matmul.rows
        self.threads = self.d.warps * WARP
        self.combined = 2 if matmul.gated else 1
        self.row_count = self.rows.value if isinstance(self.rows, IntImm) else MAX_ROWS
        self.block_results = self.d.columns // self.combined
        self.results = -(-self.row_count * self.block_results // self.threads)
        self.blocks = -(-self.columns // self.d.columns)
        self.result = Result(matmul)
        self.stages_in_order = bool(matmul.statistics) and self.weights.orders_chunks
        order = self.weights.order if self.stages_in_order else _same
        self.staged = Staged(matmul, self.unit, self.d, order) if matmul.statistics else None
        self._make_buffers()

    def _make_buffers(self) -> None:
        self.sums = buffer("sums", (self.d.warps, self.row_count, self.d.columns + SUMS_PADDING), "float32", "shared")
        self.arrived = buffer("arrived", (1,), "uint32", "shared")
        results = (self.row_count, self.blocks * self.block_results)
        self.part_sums = buffer("part_sums", (self.d.parts, self.combined, *results), "float32")
        self.arrivals = buffer("arrivals", (self.blocks,), "uint32", ZEROED)

    def nest(self) -> Stmt:
        """The loops over blocks and threads."""
        block, warp, lane = Var("block"), Var("warp", "int32"), Var("lane", "int32")
        threads = ((lane, WARP), (warp, self.d.warps))
        shared = (self.sums, *(self.staged.buffers if self.staged else ()))
        if self.d.parts == 1:
            body = self._body(block, const(0, "int32"), warp, lane)
            return nest(((block, self.blocks),), threads, shared, body, BLOCKS_PER_MULTIPROCESSOR)
        part = Var("part", "int32")
        blocks, shared = ((block, self.blocks), (part, self.d.parts)), (*shared, self.arrived)
        kernel = nest(blocks, threads, shared, self._body(block, part, warp, lane), BLOCKS_PER_MULTIPROCESSOR)
        return allocated((self.part_sums, self.arrivals), kernel)

    def _body(self, block: Var, part: PrimExpr, warp: Var, lane: Var) -> Stmt:
        """The statements of a thread: prefetch weights if possible, wait for the previous kernel, multiply."""
        body = expand(multiply_rows, self, block, part, warp, lane)
        positions = self.d.steps * self.d.warps * self.span
        stored = self.spans * self.span if self.weights.has_layouts else None
        prefetch = prefetches(self.weights.sources(), positions, self.d, self.columns, self.gpu, stored)
        return body if prefetch is None else seq(prefetch(block, part, warp * WARP + lane), body)

    # -- positions

    def first_span(self, part: PrimExpr) -> PrimExpr:
        """The first span of a part of the depth."""
        return part * (self.d.steps * self.d.warps)

    def span_in_part(self, warp: Var, step: PrimExpr) -> PrimExpr:
        return cast("int32", step) * self.d.warps + warp

    def position(self, span: PrimExpr, lane: Var) -> PrimExpr:
        """The first position of a lane in a span."""
        return cast("int64", span) * self.span + cast("int64", lane % SPAN_LANES) * self.unit

    def row(self, lane: Var) -> PrimExpr:
        """This lane's row of the activations; the last row for lanes beyond it."""
        return minimum(cast("int64", lane // 4), self.rows - 1)

    def column(self, block: Var, lane: Var, tile: PrimExpr, half: PrimExpr) -> PrimExpr:
        inside = cast("int32", tile) * MMA_ROWS + cast("int32", half) * 8 + lane // 4
        column = block * self.d.columns + cast("int64", inside)
        return minimum(column, self.columns - 1) if self.columns % self.d.columns else column

    # -- operands

    def is_whole(self, span: PrimExpr) -> PrimExpr:
        """Whether all positions of a span are in the depth."""
        return span < self.matmul.depth // self.span

    def activation(self, lane: Var, first: PrimExpr, e: PrimExpr, inside: bool) -> PrimExpr:
        """The activation of this lane's row at position ``first + e``; 0 beyond the depth, unless ``inside``.

        first: a multiple of ``CHUNK``, of which ``e`` counts the positions.
        """
        row, depth = self.row(lane), self.matmul.depth
        if inside:
            return self.matmul.activation.element(row, first + e)
        if depth % CHUNK:
            value = self.matmul.activation.element(row, minimum(first + e, depth - 1))
            return Select(first + e < depth, value, const(0, self.dtype))
        near = minimum(first // CHUNK, depth // CHUNK - 1) * CHUNK
        return Select(first < depth, self.matmul.activation.element(row, near + e), const(0, self.dtype))

    def mma(self, acc: BufferLoad, a: BufferLoad, b: BufferLoad) -> Call:
        return self._run(f"mma.m16n8k16.f32.{SHORT[self.dtype]}", acc, a, b)

    def _run(self, name: str, *operands: BufferLoad) -> Call:
        places = (Call("address_of", (o,), "handle") for o in operands)
        return Call(f"intrinsic.cuda.{name}", tuple(places), "handle")

    # -- results

    def place(self, number: PrimExpr, thread: PrimExpr) -> PrimExpr:
        """The index of a thread's result ``number`` among those of the block."""
        return cast("int32", number) * self.threads + thread

    def sum_row(self, lane: Var, i: PrimExpr) -> PrimExpr:
        """The row of sum ``i`` of the four sums that a lane has of a tile."""
        return lane % 4 * 2 + cast("int32", i % 2)

    def sum_column(self, lane: Var, tile: PrimExpr, i: PrimExpr) -> PrimExpr:
        """The column of that sum in ``sums``; for a gated matmul, the halves are apart, as ``warp_sum`` reads them."""
        half = cast("int32", i // 2)
        if self.matmul.gated:
            return half * self.block_results + cast("int32", tile) * MMA_COLUMNS + lane // 4
        return cast("int32", tile) * MMA_ROWS + half * MMA_COLUMNS + lane // 4

    def is_result(self, block: Var, place: PrimExpr) -> PrimExpr:
        row, column = self.result_row(place), self.result_column(block, place)
        inside = logical_and(row < self.rows, place < self.row_count * self.block_results)
        whole = self.columns % self.d.columns == 0 and self.matmul.results * self.combined == self.columns
        return inside if whole else logical_and(inside, column < self.matmul.results)

    def result_row(self, place: PrimExpr) -> PrimExpr:
        return cast("int64", place // self.block_results)

    def result_column(self, block: Var, place: PrimExpr) -> PrimExpr:
        return block * self.block_results + cast("int64", place % self.block_results)

    def warp_sum(self, warp: PrimExpr, place: PrimExpr, number: PrimExpr) -> BufferLoad:
        """Sum ``number`` of those that the result at ``place`` depends on, of one warp."""
        column = cast("int32", number) * self.block_results + place % self.block_results
        return self.sums[cast("int32", warp), place // self.block_results, column]

    def combined_sums(self, totals: Buffer) -> list[PrimExpr]:
        return [totals[number] for number in range(self.combined)]
