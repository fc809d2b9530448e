"""The loops over blocks and threads of a matmul, and the choice between kernels at the launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.expr import IntImm, PrimExpr, Var, ceildiv, const, is_const
from ....ir.simplify import simplify
from ....tir.nodes import THREAD, Allocate, Buffer, For, IfThenElse, Stmt
from ..emitter import MIN_BLOCKS


def either(condition: PrimExpr, first: Callable[[], Stmt], second: Callable[[], Stmt]) -> Stmt:
    """``if condition: first else: second``, folded for constants; the condition depends on scalar parameters only."""
    condition = simplify(condition)
    if isinstance(condition, IntImm):
        return second() if is_const(condition, 0) else first()
    return IfThenElse(condition, first(), second())


def tiled(
    rows: PrimExpr,
    columns: int,
    tile: tuple[int, int],
    threads: int,
    shared: Sequence[Buffer],
    body: Callable[[Var, Var, Var], Stmt],
    blocks: int = 1,
) -> Stmt:
    """Loops with a thread block for each tile of a matrix. body: (row of tiles, column of tiles, int32 thread) -> Stmt.

    Blocks of one column of tiles are consecutive: they read the same weights. blocks: minimum per multiprocessor.
    """
    row_block, column_block, thread = Var("row_block"), Var("column_block"), Var("thread", "int32")
    nest: Stmt = For(thread, const(threads, "int32"), body(row_block, column_block, thread), THREAD, "threadIdx.x")
    for buffer in shared:
        nest = Allocate(buffer, nest)
    nest = For(row_block, ceildiv(rows, tile[0]), nest, THREAD, "blockIdx.x")
    return For(column_block, IntImm(-(-columns // tile[1])), nest, THREAD, "blockIdx.y", {MIN_BLOCKS: blocks})
