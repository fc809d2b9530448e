"""Scratch memory of a tile of queries, which kernels of attention share."""

from __future__ import annotations

from ....ir.expr import PrimExpr, Var
from ....tir.nodes import PARALLEL, Allocate, Buffer, For, Stmt, buffer
from .attention_tiles import Tiles

DYNAMIC = {"schedule": "dynamic"}


class TileBuffers:
    """Buffers of one work item, by the names that ``attention_loops.py`` uses.

    ahead: how many pages ahead keys and values are prefetched; 0: not at all.
    """

    ahead = 0

    def make_tile(self, tiles: Tiles, key: int) -> None:
        """Make the buffers of a tile; key: elements of a key."""
        self.scratch: list[Buffer] = []
        self.lanes, self.row_tile, self.block = tiles.lanes, tiles.row_tile, tiles.block
        self.padded_value = tiles.value_tiles * tiles.value_vectors * tiles.lanes
        local = self.local
        self.query, self.acc = local("query", tiles.rows, key), local("acc", tiles.rows, self.padded_value)
        self.row_max, self.row_sum = local("row_max", tiles.rows), local("row_sum", tiles.rows)
        self.score, self.fold = local("score", tiles.row_tile, tiles.block), local("fold", tiles.lanes)
        self.weights = local("weights", tiles.lanes)
        self.new_max, self.correction = local("new_max", tiles.row_tile), local("correction", tiles.row_tile)
        self.key_sums = local("key_sums", tiles.row_tile, tiles.key_vectors, tiles.lanes)
        self.value_sums = local("value_sums", tiles.value_rows, tiles.value_vectors, tiles.lanes)

    def local(self, name: str, *shape: int, dtype: str = "float32") -> Buffer:
        """A new buffer of each work item."""
        self.scratch.append(buffer(name, shape, dtype, scope="local"))
        return self.scratch[-1]

    def parallel(self, item: Var, extent: PrimExpr, body: Stmt) -> Stmt:
        """Work items that threads claim as they are free, each with its scratch memory."""
        return For(item, extent, allocated(self.scratch, body), PARALLEL, None, DYNAMIC)


def allocated(buffers: list[Buffer], body: Stmt) -> Stmt:
    """``body`` with memory for buffers."""
    for scratch in reversed(buffers):
        body = Allocate(scratch, body)
    return body
