"""The kernel of a matmul on tensor cores: cp.async, ldmatrix, mma.sync and a software pipeline over the depth.

Activations, and weights that are stored in the activations' dtype, are copied to shared memory asynchronously. Other
operands, such as quantized weights, are computed in registers while a previous tile is multiplied, and then stored to
shared memory. Activations outside of the rows or the depth are 0; weights outside are any finite weights.

On GPUs with wgmma, two warpgroups compute a tile; activations that are a plain matrix are copied by tensor copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import Call, IntImm, PrimExpr, Select, Var, cast, const, logical_and, minimum
from ....script import expand
from ....tir.nodes import Buffer, Stmt, buffer
from ..instructions.operands import SHORT
from ..machine import WARP
from .boxes import Boxes, activations, run
from .fused_matmul import FusedMatmul, Result
from .grids import tiled
from .loops import multiply_tile
from .packed import has_whole_chunks
from .result_rows import ResultRows
from .tiles import CHUNK, MMA_COLUMNS, MMA_ROWS, WARPGROUPS, Tile

MANY_FRAGMENTS = 16
"""Accumulator fragments of a warp above which registers suffice for only two words of each chunk of packed weights."""


@dataclass(eq=False)
class Kernel:
    """Sizes, buffers and expressions for the macros of ``loops.py``.

    t: sizes of the tiles. steps: tiles along the depth, in ``iterations`` of ``unrolled`` steps. x_units, w_units:
    chunks of a tile of the activations and of the weights that one thread loads. xs, ws: the tiles in shared memory.
    x_computed, w_computed: whether the operand is computed in registers; else it is copied, or packed and unpacked by
    an instruction. fetched: how many steps ahead packed weights are loaded, ``taken`` stored elements for a chunk.
    clamped: whether tiles reach beyond the depth. pairs: whether results are stored in pairs. combined: sums per
    result. result_tiles: fragments of 8 columns of results per warp. by_rows: the exchange of sums, if results are
    stored by rows. boxes: the tensor copies, if the activations use them.
    """

    matmul: FusedMatmul
    t: Tile

    def __post_init__(self) -> None:
        matmul, tile = self.matmul, self.t
        self.rows, self.columns, self.dtype = matmul.rows, matmul.columns, matmul.dtype
        self.steps = -(-matmul.depth // tile.depth)
        self.x_units = tile.rows * tile.chunks // tile.threads
        self.w_units = tile.columns * tile.chunks // tile.threads
        whole_chunks = matmul.depth % CHUNK == 0
        self.x_computed = not (matmul.activation.stored and whole_chunks)
        self.w_copied = matmul.weight.stored and whole_chunks
        self.warpgroups = tile is WARPGROUPS
        self.packed = matmul.packed if matmul.packed and has_whole_chunks(matmul.packed) else None
        self.unpacks = self.packed is not None
        self.code_dtype = self.packed.unpacking.dtype if self.packed else "uint32"
        self.taken = CHUNK // self.packed.unpacking.positions if self.packed else 1
        self.w_computed = not (self.w_copied or self.unpacks)
        self.computes = self.x_computed or self.w_computed
        self.unrolled = tile.stages if self.unpacks else 1
        words = 2 if tile.row_tiles * tile.column_tiles > MANY_FRAGMENTS else tile.stages
        self.fetched = min(tile.stages - 1, max(words * 4 // (self.taken * dt.nbytes(self.code_dtype)), 1))
        self.iterations = -(-self.steps // self.unrolled)
        self.clamped = matmul.depth % tile.depth != 0
        self.pairs = matmul.results % 2 == 0
        self.combined = 2 if matmul.gated else 1
        self.result_tiles = tile.column_tiles // self.combined
        self.result = Result(matmul)
        self.xs = buffer("x_shared", (tile.stages, tile.rows, tile.depth), matmul.dtype, "shared")
        self.ws = buffer("w_shared", (tile.stages, tile.columns, tile.depth), matmul.dtype, "shared")
        stores_rows = self.warpgroups and matmul.results % CHUNK == 0
        self.by_rows = ResultRows(tile, self.combined) if stores_rows else None
        x = activations(matmul, tile) if self.warpgroups and not self.w_copied else None
        self.boxes = None if x is None else Boxes(tile, self.xs, self.ws, x, None)

    def nest(self) -> Stmt:
        """The loops over blocks and threads."""

        tile = (self.t.rows, self.t.columns)
        return tiled(self.rows, self.columns, tile, self.t.threads, self.shared, self.body, self.blocks)

    @property
    def blocks(self) -> int:
        """Minimum number of thread blocks per multiprocessor, which limits the registers of a thread.

        One if operands are computed, or if bytes are unpacked beside the accumulators of wgmma, for which half of the
        registers are too few.
        """
        return 1 if self.computes or (self.warpgroups and self.taken > 1) else self.t.blocks

    def body(self, row_block: Var, column_block: Var, thread: Var) -> Stmt:
        """The statements of a thread for a tile."""
        return expand(multiply_tile, self, row_block, column_block, thread)

    @property
    def copies_boxes(self) -> bool:
        """Whether operands are copied by tensor copies rather than cp.async."""
        return self.boxes is not None

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """The buffers in shared memory, the last one first: wgmma's operands at multiples of 1024 bytes."""
        exchanged = () if self.by_rows is None else (self.by_rows.sums,)
        counted = () if self.boxes is None else (self.boxes.full,)
        return (*exchanged, *counted, self.ws, self.xs)

    @property
    def stores_rows(self) -> bool:
        """Whether results are stored by rows."""
        return self.by_rows is not None

    # -- positions in the tiles

    def x_chunk(self, thread: Var) -> PrimExpr:
        return thread % self.t.chunks

    def x_row(self, thread: Var, unit: PrimExpr) -> PrimExpr:
        return unit * (self.t.threads // self.t.chunks) + cast("int64", thread // self.t.chunks)

    def x_place(self, thread: Var) -> PrimExpr:
        return self.place(thread // self.t.chunks, self.x_chunk(thread))

    def w_chunk(self, thread: Var, unit: PrimExpr) -> PrimExpr:
        if not self.matmul.weight.by_column:
            return thread % self.t.chunks
        first = unit * self.t.threads // self.t.columns
        return cast("int32", first) + thread // self.t.columns

    def w_row(self, thread: Var, unit: PrimExpr) -> PrimExpr:
        if not self.matmul.weight.by_column:
            return unit * (self.t.threads // self.t.chunks) + cast("int64", thread // self.t.chunks)
        return cast("int64", thread % self.t.columns)

    def w_place(self, thread: Var, unit: PrimExpr) -> PrimExpr:
        row = thread % self.t.columns if self.matmul.weight.by_column else thread // self.t.chunks
        return self.place(row, self.w_chunk(thread, unit))

    def place(self, row: PrimExpr, chunk: PrimExpr) -> PrimExpr:
        """The swizzled position of a chunk in its row: 8 rows of one chunk are in different 16 bytes of 128.

        It is the same for rows that are 8 apart, so that addresses differ by constants.
        """
        rows_of_a_line = max(1, CHUNK // self.t.chunks)
        return (chunk ^ (row // rows_of_a_line % self.t.chunks)) * CHUNK

    # -- loads of a tile

    def copy_activation(self, row_block: Var, thread: Var, step: PrimExpr, stage: PrimExpr, unit: PrimExpr) -> Call:
        """Copy 16 bytes of a row; zeros outside of the matrix."""
        row = self.x_row(thread, unit)
        from_row, from_k = row_block * self.t.rows + row, self._position(step, self.x_chunk(thread))
        inside = from_row < self.rows
        if self.clamped:
            inside = logical_and(inside, from_k < self.matmul.depth)
        source = self.matmul.activation.element(minimum(from_row, self.rows - 1), self._inside(from_k))
        target = self.xs[stage, row, self.x_place(thread)]
        count = Select(inside, const(CHUNK, "int32"), const(0, "int32"))
        return run(f"cp_async.16.zfill.{SHORT[self.dtype]}", target, source, count)

    def copy_weight(self, column_block: Var, thread: Var, step: PrimExpr, stage: PrimExpr, unit: PrimExpr) -> Call:
        """Copy 16 bytes of a column; any finite weights outside of the matrix."""
        row, k = self.w_row(thread, unit), self._position(step, self.w_chunk(thread, unit))
        source = self.matmul.weight.element(self._column(column_block, row), self._inside(k))
        return run(f"cp_async.16.{SHORT[self.dtype]}", self.ws[stage, row, self.w_place(thread, unit)], source)

    def activation(self, row_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr, e: PrimExpr) -> PrimExpr:
        """Element ``e`` of a chunk of the activations; 0 outside of the matrix."""
        row = row_block * self.t.rows + self.x_row(thread, unit)
        k = self._position(step, self.x_chunk(thread)) + e
        last = self.matmul.depth - 1
        value = self.matmul.activation.element(minimum(row, self.rows - 1), minimum(k, last))
        inside = logical_and(row < self.rows, k < self.matmul.depth)
        return Select(inside, value, const(0, self.dtype))

    def weight(self, column_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr, e: PrimExpr) -> PrimExpr:
        """Element ``e`` of a chunk of the weights; any finite weight outside of the matrix."""
        column = self._column(column_block, self.w_row(thread, unit))
        k = self._position(step, self.w_chunk(thread, unit))
        if self.matmul.depth % CHUNK:
            k = minimum(k + e, self.matmul.depth - 1)
        else:
            k = self._inside(k) + e
        return self.matmul.weight.element(column, k)

    def codes(self, column_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr, number: PrimExpr) -> PrimExpr:
        """Stored element ``number``, of ``taken``, with the codes of a chunk of a column."""
        assert self.packed is not None
        column, k = self._packed_place(column_block, thread, step, unit)
        return self.packed.stored(column, k // CHUNK * self.taken + number)

    def scale(self, column_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr) -> PrimExpr:
        assert self.packed is not None
        return self.packed.scale(*self._packed_place(column_block, thread, step, unit))

    def _packed_place(
        self, column_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr
    ) -> tuple[PrimExpr, PrimExpr]:
        k = self._position(step, self.w_chunk(thread, unit))
        return self._column(column_block, self.w_row(thread, unit)), minimum(k, (self.matmul.depth - 1) // 8 * 8)

    def unpack(
        self, held: Buffer, codes: Buffer, scales: Buffer, book: Buffer, stage: PrimExpr, unit: PrimExpr, part: PrimExpr
    ) -> Call:
        """Unpack part ``part`` of a chunk of codes by one instruction."""
        assert self.packed is not None
        of = self.packed.unpacking
        out, source = held[unit, part * of.codes], codes[stage, unit, part * of.elements]
        return self.packed.unpack(False, out, source, scales[stage, unit], book[0])

    def stage(self, step: PrimExpr, part: PrimExpr, ahead: int) -> PrimExpr:
        """The stage of the tile ``ahead`` steps after ``step``; ``part``: index of the step in its iteration."""
        return ((part if self.unpacks else step) + ahead) % self.t.stages

    def _position(self, step: PrimExpr, chunk: PrimExpr) -> PrimExpr:
        return cast("int64", step) * self.t.depth + cast("int64", chunk) * CHUNK

    def _inside(self, k: PrimExpr) -> PrimExpr:
        """The position ``k`` of a chunk, clamped to the depth."""
        return minimum(k, self.matmul.depth - CHUNK) if self.clamped else k

    def _column(self, column_block: Var, row: PrimExpr) -> PrimExpr:
        column = column_block * self.t.columns + row
        return minimum(column, self.columns - 1) if self.columns % self.t.columns else column

    # -- fragments

    def load_left(self, a: Buffer, i: PrimExpr, thread: Var, stage: PrimExpr, part: PrimExpr) -> Call:
        row = self._warp_row(thread) + thread % 16
        place = self.place(row, cast("int32", part) * 2 + thread // 16 % 2)
        source = self.xs[stage, i * MMA_ROWS + cast("int64", row), place]
        return run(f"ldmatrix.x4.{SHORT[self.dtype]}", a[i, 0], source)

    def load_right(self, b: Buffer, j: PrimExpr, thread: Var, stage: PrimExpr, part: PrimExpr) -> Call:
        """Load the right operand's fragments of 16 columns."""
        row = self._warp_column(thread) + thread // 16 % 2 * 8 + thread % 8
        place = self.place(row, cast("int32", part) * 2 + thread // 8 % 2)
        source = self.ws[stage, j * (2 * MMA_COLUMNS) + cast("int64", row), place]
        return run(f"ldmatrix.x4.{SHORT[self.dtype]}", b[j * 2, 0], source)

    def mma(self, acc: Buffer, a: Buffer, b: Buffer, i: PrimExpr, j: PrimExpr) -> Call:
        return run(f"mma.m16n8k16.f32.{SHORT[self.dtype]}", acc[i, j, 0], a[i, 0], b[j, 0])

    def wgmma(self, acc: Buffer, thread: Var, stage: PrimExpr, part: int) -> Call:
        """Multiply 64 rows with all columns of the tile."""
        rows = cast("int64", thread // (4 * WARP) * 64)
        left, right = self.xs[stage, rows, 0], self.ws[stage, 0, 0]
        name = f"wgmma.m64n{self.t.columns}k16.f32.{SHORT[self.dtype]}"
        return run(name, acc[0, 0, 0], left, right, IntImm(part))

    def instruction(self, name: str) -> Call:
        """An instruction without operands."""
        return run(name)

    def wait_for_mma(self, acc: Buffer, pending: int) -> Call:
        return run(f"wgmma.wait.n{self.t.columns}", acc[0, 0, 0], IntImm(pending))

    def _warp_row(self, thread: Var) -> PrimExpr:
        return thread // (WARP * self.t.warps_across) * self.t.warp_rows

    def _warp_column(self, thread: Var) -> PrimExpr:
        return thread // WARP % self.t.warps_across * self.t.warp_columns

    # -- results (PTX ISA, "Matrix Fragments for mma.m16n8k16": the accumulators)

    def result_row(self, row_block: Var, thread: Var, i: PrimExpr, half: PrimExpr) -> PrimExpr:
        inside = self._warp_row(thread) + cast("int32", i) * 16 + thread % WARP // 4 + cast("int32", half) * 8
        return row_block * self.t.rows + cast("int64", inside)

    def result_column(self, column_block: Var, thread: Var, j: PrimExpr) -> PrimExpr:
        inside = self._warp_column(thread) // self.combined + cast("int32", j) * MMA_COLUMNS + thread % 4 * 2
        return column_block * (self.t.columns // self.combined) + cast("int64", inside)

    def combined_sums(self, acc: Buffer, i: PrimExpr, j: PrimExpr, e: PrimExpr) -> list[PrimExpr]:
        """The sums that a result depends on: for a gated matmul, of two adjacent fragments, see ``gates.py``."""
        return [acc[i, self.sum_place(j, const(number, "int64")), e] for number in range(self.combined)]

    def sum_place(self, j: PrimExpr, number: PrimExpr) -> PrimExpr:
        """The fragment of sum ``number`` of the results of fragment ``j``."""
        return j * self.combined + number

    def sums_of(self, sums: Buffer, e: PrimExpr) -> list[PrimExpr]:
        """The sums of result ``e`` of a chunk."""
        return [sums[number, e] for number in range(self.combined)]

    # -- instructions

    def commit(self) -> Call:
        return run("cp_async.commit")

    def wait(self, pending: int) -> Call:
        return run("cp_async.wait", IntImm(pending))
