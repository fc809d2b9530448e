"""The kernel of a product with few rows, which reads each weight once: weights go from memory to registers.

A tile of 16 columns is the left operand of ``mma.m16n8k16``, the rows are its right operand. The positions that a lane
holds are consecutive in memory; as products are summed over all positions, they may have any order in the instruction,
if both operands have the same. The warps of a block divide the depth, and add their sums in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import Call, IntImm, PrimExpr, Select, Var, cast, const, logical_and, minimum
from ....script import expand
from ....tir.nodes import THREAD, Allocate, Buffer, BufferLoad, For, Stmt, buffer
from ..emitter import MIN_BLOCKS
from ..instructions.dequantize import CODES, paired
from ..instructions.operands import SHORT
from ..machine import WARP, Gpu
from .few_rows_loops import multiply_rows
from .product import Product, Result
from .staged import Staged
from .tiles import MMA_COLUMNS, MMA_ROWS

MAX_ROWS = MMA_COLUMNS
LOAD_BYTES = 16
PACKED_UNIT = 32  # positions whose codes are 16 bytes
MAX_WARPS = 8
MAX_TILES = 4
BLOCKS_PER_MULTIPROCESSOR = 2
STEPS_TOGETHER = 2
STAGED_BYTES = 32 << 10
MAX_STATISTICS = 2


def has_statistics_kernel(product: Product) -> bool:
    """Whether ``FewRows`` can compute a product's statistics: for few rows of 16-bit activations in shared memory."""
    rows = product.rows.value if isinstance(product.rows, IntImm) else MAX_ROWS + 1
    few = rows <= MAX_ROWS and len(product.statistics) <= MAX_STATISTICS and product.dtype != "float32"
    return few and rows * product.depth * dt.nbytes(product.dtype) <= STAGED_BYTES


@dataclass(eq=False)
class FewRows:
    """The names that the macros of ``few_rows_loops.py`` use.

    tiles: tiles of 16 columns of a block. warps: of a block. unit: consecutive positions of a lane in a step, whose
    weights are 16 bytes. span: positions of a step of one warp. steps: of each warp, of which the last may be partial:
    some warps have none. exact: whether spans do not reach beyond the depth. packed: codes that are unpacked by an
    instruction. sums: the warps' sums in shared memory. combined: sums of a result. results: of a thread at most.
    staged: activations there that depend on statistics.
    """

    product: Product
    gpu: Gpu

    def __post_init__(self) -> None:
        product = self.product
        self.packed = product.packed
        self.unit = PACKED_UNIT if self.packed else LOAD_BYTES // dt.nbytes(product.dtype)
        self.span = 4 * self.unit
        steps = -(-product.depth // self.span)
        self.warps = next(w for w in (MAX_WARPS, 4, 2, 1) if w <= steps or w == 1)
        self.steps = -(-steps // self.warps)
        self.together = STEPS_TOGETHER if self.steps % STEPS_TOGETHER == 0 else 1
        self.exact = product.depth % self.span == 0
        self.partial = self.steps * self.warps != steps
        enough = BLOCKS_PER_MULTIPROCESSOR * self.gpu.multiprocessors
        fits = (t for t in (MAX_TILES, 2) if product.columns // (t * MMA_ROWS) >= enough)
        self.tiles = next(fits, 1)
        self.block_columns = self.tiles * MMA_ROWS
        self.fragments = self.unit // 4
        self.dtype, self.columns, self.rows = product.dtype, product.columns, product.rows
        self.size = self.block_columns * MMA_COLUMNS
        self.threads = self.warps * WARP
        self.combined = 2 if product.gated else 1
        self.results = -(-self.size // (self.combined * self.threads))
        self.sums = buffer("sums", (self.warps, self.size), "float32", "shared")
        self.result = Result(product)
        self.staged = Staged(product, self.unit, self.warps, self.order) if product.statistics else None

    def nest(self) -> Stmt:
        """The loops over blocks and threads."""
        block, warp, lane = Var("block"), Var("warp", "int32"), Var("lane", "int32")
        body = expand(multiply_rows, self, block, warp, lane)
        body = For(lane, const(WARP, "int32"), body, THREAD, "threadIdx.x")
        body = For(warp, const(self.warps, "int32"), body, THREAD, "threadIdx.y")
        blocks = IntImm(-(-self.columns // self.block_columns))
        for shared in (self.sums, *(self.staged.buffers if self.staged else ())):
            body = Allocate(shared, body)
        return For(block, blocks, body, THREAD, "blockIdx.x", {MIN_BLOCKS: 1})

    # -- positions

    def position(self, warp: Var, lane: Var, step: PrimExpr) -> PrimExpr:
        """The first position of a lane in a step."""
        return self.span_number(warp, step) * self.span + cast("int64", lane % 4) * self.unit

    def is_inside(self, warp: Var, step: PrimExpr) -> PrimExpr:
        """Whether a warp has a part of the depth in a step."""
        return self.span_number(warp, step) < -(-self.product.depth // self.span)

    def span_number(self, warp: Var, step: PrimExpr) -> PrimExpr:
        return cast("int64", step) * self.warps + cast("int64", warp)

    def row(self, lane: Var) -> PrimExpr:
        """This lane's row of the activations; the last one for lanes without a row."""
        return minimum(cast("int64", lane // 4), self.rows - 1)

    def order(self, place: PrimExpr) -> PrimExpr:
        """The position, counted from the lane's first, of a place in its registers."""
        if self.packed is None:
            return place
        return place // CODES * CODES + paired(place % CODES)

    def column(self, block: Var, lane: Var, tile: PrimExpr, half: PrimExpr) -> PrimExpr:
        inside = cast("int32", tile) * MMA_ROWS + cast("int32", half) * 8 + lane // 4
        column = block * self.block_columns + cast("int64", inside)
        return minimum(column, self.columns - 1) if self.columns % self.block_columns else column

    # -- operands

    def activation(self, lane: Var, first: PrimExpr, e: PrimExpr) -> PrimExpr:
        """The activation of this lane's row; 0 beyond the depth."""
        row = self.row(lane)
        if self.exact:
            return self.product.activation.element(row, first + e)
        value = self.product.activation.element(row, minimum(first + e, self.product.depth - 1))
        return Select(first + e < self.product.depth, value, const(0, self.dtype))

    def weight(self, column: PrimExpr, first: PrimExpr, e: PrimExpr) -> PrimExpr:
        """A weight; any weight beyond the depth."""
        k = first + e
        return self.product.weight.element(column, k if self.exact else minimum(k, self.product.depth - 1))

    def word(self, column: PrimExpr, first: PrimExpr, number: PrimExpr) -> PrimExpr:
        assert self.packed is not None
        return self.packed.word(column, self._chunk(first, number))

    def scale(self, column: PrimExpr, first: PrimExpr, number: PrimExpr) -> PrimExpr:
        assert self.packed is not None
        return self.packed.scale(column, self._chunk(first, number))

    def _chunk(self, first: PrimExpr, number: PrimExpr) -> PrimExpr:
        """The first position of a word's codes, inside the depth."""
        k = first + cast("int64", number) * CODES
        return k if self.exact else minimum(k, (self.product.depth - 1) // CODES * CODES)

    def dequantize(self, out: BufferLoad, word: BufferLoad, scale: BufferLoad) -> Call:
        return self._run(f"dequantize.q4.pairs.{SHORT[self.dtype]}", out, word, scale)

    def mma(self, acc: BufferLoad, a: BufferLoad, b: BufferLoad) -> Call:
        return self._run(f"mma.m16n8k16.f32.{SHORT[self.dtype]}", acc, a, b)

    def _run(self, name: str, *operands: BufferLoad) -> Call:
        places = (Call("address_of", (o,), "handle") for o in operands)
        return Call(f"intrinsic.cuda.{name}", tuple(places), "handle")

    # -- results

    def sum_place(self, lane: Var, tile: PrimExpr, half: PrimExpr) -> PrimExpr:
        """Where a lane's two neighbouring sums of a tile are: [columns, 8 rows]."""
        column = cast("int32", tile) * MMA_ROWS + cast("int32", half) * 8 + lane // 4
        return column * MMA_COLUMNS + lane % 4 * 2

    def is_result(self, block: Var, place: PrimExpr) -> PrimExpr:
        row, column = self.result_row(place), self.result_column(block, place)
        inside = logical_and(row < self.rows, place < self.size // self.combined)
        whole = self.columns % self.block_columns == 0 and self.product.results * self.combined == self.columns
        return inside if whole else logical_and(inside, column < self.product.results)

    def result_row(self, place: PrimExpr) -> PrimExpr:
        return cast("int64", place % MMA_COLUMNS)

    def result_column(self, block: Var, place: PrimExpr) -> PrimExpr:
        return block * (self.block_columns // self.combined) + cast("int64", place // MMA_COLUMNS)

    def combined_place(self, place: PrimExpr, number: PrimExpr) -> PrimExpr:
        """Where a sum is that the result at a place depends on."""
        if not self.product.gated:
            return place
        fragment = MMA_COLUMNS * MMA_COLUMNS
        return place // fragment * (2 * fragment) + place % fragment + cast("int32", number) * fragment

    def combined_sums(self, totals: Buffer) -> list[PrimExpr]:
        return [totals[number] for number in range(self.combined)]
