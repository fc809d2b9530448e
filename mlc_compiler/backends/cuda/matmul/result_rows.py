"""Store the results of a warpgroup's tile by rows: a warp exchanges its sums through shared memory.

A lane has two adjacent columns of a row in an accumulator fragment. After the exchange it has eight, for 16-byte
accesses of the result and of the epilogue's operands.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, cast
from ....tir.nodes import buffer
from ..machine import WARP
from .tiles import CHUNK, MMA_ROWS, Tile

SUMS = 32
"""Sums of a row that are exchanged at a time: results times sums per result."""


@dataclass(eq=False)
class ResultRows:
    """The exchange of the sums of a tile ``t`` whose results depend on ``combined`` sums each.

    sums: in shared memory, [warps, sums of a result, rows, results]. chunks: chunks of eight results per row and round.
    rounds: number of rounds for the columns of the tile. units: chunks that a lane computes in a round.
    """

    t: Tile
    combined: int

    def __post_init__(self) -> None:
        columns = SUMS // self.combined
        self.chunks = columns // CHUNK
        self.rounds = self.t.columns // SUMS
        self.units = MMA_ROWS * self.chunks // WARP
        shape = (self.t.threads // WARP, self.combined, MMA_ROWS, columns)
        self.sums = buffer("sums_shared", shape, "float32", "shared")

    def place(self, row: PrimExpr, chunk: PrimExpr) -> PrimExpr:
        """The swizzled position of a chunk in its row: lanes that access chunks of four rows use different banks."""
        return (chunk ^ (row // (4 // self.chunks) % self.chunks)) * CHUNK

    # -- a lane's sums in a fragment (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16")

    def fragment_row(self, thread: Var, half: PrimExpr) -> PrimExpr:
        return thread % WARP // 4 + cast("int32", half) * 8

    def fragment_place(self, thread: Var, fragment: PrimExpr, half: PrimExpr) -> PrimExpr:
        return self.place(self.fragment_row(thread, half), cast("int32", fragment)) + thread % 4 * 2

    # -- a lane's chunks

    def row(self, thread: Var, unit: PrimExpr) -> PrimExpr:
        return (cast("int32", unit) * WARP + thread % WARP) // self.chunks

    def chunk(self, thread: Var) -> PrimExpr:
        return thread % self.chunks

    def result_row(self, row_block: Var, thread: Var, unit: PrimExpr) -> PrimExpr:
        return row_block * self.t.rows + cast("int64", thread // WARP * MMA_ROWS + self.row(thread, unit))

    def result_column(self, column_block: Var, thread: Var, part: PrimExpr) -> PrimExpr:
        inside = cast("int32", part) * (self.chunks * CHUNK) + self.chunk(thread) * CHUNK
        return column_block * (self.t.columns // self.combined) + cast("int64", inside)
