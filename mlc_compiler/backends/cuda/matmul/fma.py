"""The kernel of a float32 matmul: tiles in shared memory, a square of accumulators per thread, fused multiply-adds."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Select, Var, cast, ceildiv, const, logical_and, minimum
from ....script import expand
from ....tir.nodes import PrimFunc, Stmt, buffer
from ..machine import Gpu
from .fma_loops import multiply_tile
from .fused_matmul import FusedMatmul, Result
from .grids import either, tiled

ACROSS = 16
"""Threads of a block in each direction of a tile."""
DEPTH = 16
"""Positions (K) of a stage."""
VECTOR = 4
"""Consecutive rows or columns of a thread; its next ones are ``ACROSS * VECTOR`` further."""
PADDING = 4
"""Padding elements between the positions of a stage, against bank conflicts of the stores of a warp."""
LARGE, SMALL = 8, 4
"""Rows and columns of a thread."""


def fma_kernel(func: PrimFunc, matmul: FusedMatmul, gpu: Gpu) -> PrimFunc:
    """``func`` as kernels that compute ``matmul``: with large tiles if there are enough for all multiprocessors."""
    side = ACROSS * LARGE
    blocks = ceildiv(matmul.rows, side) * -(-matmul.columns // side)
    body = either(
        blocks >= gpu.multiprocessors,
        lambda: FmaKernel(matmul, LARGE).nest(),
        lambda: FmaKernel(matmul, SMALL).nest(),
    )
    return PrimFunc(func.params, body, {**func.attrs, "cuda.explicit_sync": True})


@dataclass(eq=False)
class FmaKernel:
    """Sizes, buffers and expressions for the macros of ``fma_loops.py``.

    side: rows and columns of a thread. units: elements that a thread loads of a stage of either operand. xs, ws: the
    stages in shared memory, [stages, positions, rows or columns].
    """

    matmul: FusedMatmul
    side: int

    def __post_init__(self) -> None:
        self.tile = ACROSS * self.side
        self.rows, self.columns, self.depth = self.matmul.rows, self.matmul.columns, DEPTH
        self.steps = -(-self.matmul.depth // DEPTH)
        self.units = self.tile * DEPTH // ACROSS**2
        self.quads = self.side // VECTOR
        self.result = Result(self.matmul)
        self.xs, self.ws = (buffer(n, (2, DEPTH, self.tile + PADDING), "float32", "shared") for n in ("xs", "ws"))
        self.shared = (self.ws, self.xs)

    def nest(self) -> Stmt:
        """The loops over blocks and threads."""

        def body(row_block: Var, column_block: Var, thread: Var) -> Stmt:
            return expand(multiply_tile, self, row_block, column_block, thread)

        return tiled(self.rows, self.columns, (self.tile, self.tile), ACROSS**2, self.shared, body)

    # -- loads: the index of a thread's element in a stage, as (row or column, position)

    def x_place(self, thread: Var, unit: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        index = cast("int32", unit) * ACROSS**2 + thread
        return index // DEPTH, index % DEPTH

    def w_place(self, thread: Var, unit: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        index = cast("int32", unit) * ACROSS**2 + thread
        return (index % self.tile, index // self.tile) if self.matmul.weight.by_column else self.x_place(thread, unit)

    def activation(self, row_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr) -> PrimExpr:
        """The activation that a thread loads; 0 outside of the matrix."""
        row, k = self.x_place(thread, unit)
        row, k = row_block * self.tile + cast("int64", row), step * DEPTH + cast("int64", k)
        value = self.matmul.activation.element(minimum(row, self.rows - 1), minimum(k, self.matmul.depth - 1))
        return Select(logical_and(row < self.rows, k < self.matmul.depth), value, const(0.0, "float32"))

    def weight(self, column_block: Var, thread: Var, step: PrimExpr, unit: PrimExpr) -> PrimExpr:
        """The weight that a thread loads; any finite weight outside of the matrix."""
        column, k = self.w_place(thread, unit)
        column, k = column_block * self.tile + cast("int64", column), step * DEPTH + cast("int64", k)
        return self.matmul.weight.element(minimum(column, self.columns - 1), minimum(k, self.matmul.depth - 1))

    # -- results

    def first_row(self, thread: Var, quad: PrimExpr) -> PrimExpr:
        """The first of four rows of a thread, in its tile."""
        return quad * (ACROSS * VECTOR) + cast("int64", thread // ACROSS * VECTOR)

    def first_column(self, thread: Var, quad: PrimExpr) -> PrimExpr:
        """The first of four columns of a thread, in its tile."""
        return quad * (ACROSS * VECTOR) + cast("int64", thread % ACROSS * VECTOR)
