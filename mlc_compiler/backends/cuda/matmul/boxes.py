"""Tensor copies of a matmul's operands: boxes of two matrices, whose bytes mbarriers count.

The mbarrier ``full`` of a stage completes a phase whenever the bytes of a step have arrived, ``free`` whenever all
warps have multiplied a step.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import Call, IntImm, PrimExpr, Var, cast, const
from ....ir.simplify import Analyzer
from ....ir.visitor import walk
from ....tir.calling import flat_index
from ....tir.nodes import Buffer, BufferLoad, buffer
from ..instructions.copies import BOX_COLUMNS, TENSOR_COPY
from ..instructions.operands import SHORT
from ..machine import WARP
from .fused_matmul import FusedMatmul, Operand
from .gates import column_of
from .tiles import Tile


@dataclass(frozen=True)
class Matrix:
    """A parameter that is a row-major matrix [height, width], copied in boxes of ``box_rows`` rows."""

    buffer: Buffer
    height: PrimExpr
    width: int
    box_rows: int

    @property
    def first(self) -> BufferLoad:
        return BufferLoad(self.buffer, tuple(IntImm(0) for _ in self.buffer.shape))


def activations(matmul: FusedMatmul, tile: Tile) -> Matrix | None:
    """The activations [rows, depth]; None where tensor copies cannot read them."""
    row = Var("row")
    return _matrix(matmul, matmul.activation, row, row, matmul.rows, tile.rows)


def weights(matmul: FusedMatmul, tile: Tile) -> Matrix | None:
    """The weights [columns, depth]; None where tensor copies cannot read them.

    For a gated matmul, the matrix has both halves of the weights, and a tile has a box of each.
    """
    column, sums = Var("column"), 1 + matmul.gated
    place = column_of(column, matmul.results) if matmul.gated else column
    height = const(matmul.results * sums, "int64")
    return _matrix(matmul, matmul.weight, column, place, height, tile.columns // sums)


def _matrix(
    matmul: FusedMatmul, operand: Operand, row: Var, place: PrimExpr, height: PrimExpr, box_rows: int
) -> Matrix | None:
    """The matrix whose element (``place``, k) is the operand's element (``row``, k); None if there is none.

    A kernel that reads the same buffer elsewhere needs its address, and cannot receive it as a tensor map.
    """
    k = Var("k")
    load = operand.element(row, k)
    if not operand.stored or not isinstance(load, BufferLoad) or not _is_read_once(matmul, load.buffer):
        return None
    analyzer = Analyzer()
    analyzer.bind(row, height)
    analyzer.bind(k, const(matmul.depth, "int64"))
    if not analyzer.prove_equal(flat_index(load.buffer, load.indices), place * matmul.depth + k):
        return None
    return Matrix(load.buffer, height, matmul.depth, box_rows)


def _is_read_once(matmul: FusedMatmul, source: Buffer) -> bool:
    zero, sums = const(0, "int64"), [const(0.0, "float32")] * (1 + matmul.gated)
    others = (
        matmul.epilogue(zero, zero, sums),
        matmul.activation.element(zero, zero),
        matmul.weight.element(zero, zero),
    )
    return sum(isinstance(n, BufferLoad) and n.buffer is source for other in others for n in walk(other)) == 1


@dataclass(eq=False)
class Boxes:
    """The tensor copies of a kernel with tiles ``t``: of the activations, and of the weights unless ``w`` is None.

    xs, ws: the tiles in shared memory, [stages, rows or columns, positions]. w_boxes: number of boxes per weight tile.
    """

    t: Tile
    xs: Buffer
    ws: Buffer
    x: Matrix
    w: Matrix | None

    def __post_init__(self) -> None:
        self.full, self.free = (buffer(name, (self.t.stages,), "uint64", "shared") for name in ("full", "free"))
        self.w_boxes = 0 if self.w is None else self.t.columns // self.w.box_rows
        elements = (self.t.rows + (0 if self.w is None else self.t.columns)) * BOX_COLUMNS
        self.bytes_of_stage = elements * dt.nbytes(self.xs.dtype)

    def prepare(self, stage: PrimExpr) -> Call:
        """Initialise ``full``, at which one thread arrives, with the number of bytes."""
        return run("mbarrier.init", self.full[stage], const(1, "int32"))

    def prepare_free(self, stage: PrimExpr) -> Call:
        """Initialise ``free``, at which one lane of each warp arrives."""
        return run("mbarrier.init", self.free[stage], const(self.t.threads // WARP, "int32"))

    def expect(self, stage: PrimExpr) -> Call:
        return run("mbarrier.arrive_expect_tx", self.full[stage], const(self.bytes_of_stage, "int32"))

    def copy_activations(self, row_block: Var, step: PrimExpr, stage: PrimExpr) -> Call:
        return self._copy(self.x, self.xs[stage, 0, 0], row_block * self.t.rows, step, stage)

    def copy_weights(self, column_block: Var, step: PrimExpr, stage: PrimExpr, half: PrimExpr) -> Call:
        """Copy the weights of a tile; for a gated matmul, those of half 0 or 1."""
        assert self.w is not None
        first = column_block * self.w.box_rows + half * (self.w.height // self.w_boxes)
        return self._copy(self.w, self.ws[stage, half * self.w.box_rows, 0], first, step, stage)

    def _copy(self, m: Matrix, target: BufferLoad, first: PrimExpr, step: PrimExpr, stage: PrimExpr) -> Call:
        name = f"{TENSOR_COPY.removeprefix('cuda.')}.{m.box_rows}.{SHORT[m.buffer.dtype]}"
        place = first, cast("int64", step) * BOX_COLUMNS
        return run(name, target, m.first, self.full[stage], *place, m.height, const(m.width, "int64"))

    def wait(self, stage: PrimExpr, step: PrimExpr) -> Call:
        """Wait, in all threads, until the bytes of ``step`` have arrived."""
        return run("mbarrier.wait", self.full[stage], self._phase(step))

    def release(self, stage: PrimExpr) -> Call:
        return run("mbarrier.arrive", self.free[stage])

    def acquire(self, stage: PrimExpr, step: PrimExpr) -> Call:
        """Wait, in the thread that copies, until all warps have multiplied ``step``."""
        return run("mbarrier.acquire", self.free[stage], self._phase(step))

    def _phase(self, step: PrimExpr) -> PrimExpr:
        """The parity of the phase of ``step`` in its stage."""
        return cast("int32", step // self.t.stages % 2)


def run(name: str, *operands: PrimExpr) -> Call:
    """The instruction ``cuda.name``; elements of buffers are passed as their addresses."""
    places = (Call("address_of", (o,), "handle") if isinstance(o, BufferLoad) else o for o in operands)
    return Call(f"intrinsic.cuda.{name}", tuple(places), "handle")
