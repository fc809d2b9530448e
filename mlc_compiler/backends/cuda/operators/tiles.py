"""Tiles of queries on a GPU: the rows of a thread block, and the blocks of keys that each run of them attends to.

A row is a query head of a token; the rows of a key/value head are numbered token by token. A run is the rows of a tile
that belong to consecutive tokens of one sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ....ir import dtype as dt
from ....ir.expr import PrimExpr, binary, ceildiv, const, logical_or, maximum, minimum
from ....relax.ops.attention import as_index
from ....tir import te
from ....tir.nodes import Buffer, buffer
from ...paged_attention import PagedAttention, known_size
from ..emitter import ALIGNMENT
from ..machine import WARP


@dataclass(eq=False)
class Tiles:
    """Sizes, buffers and expressions for the macros of ``tile_loops.py``.

    rows: per tile. block: keys per block. warps: per thread block. Shared: sequences, positions, ends, runs [rows]:
    for each row its sequence, position, end of its positions, and the first row of its run; ``rows`` for rows beyond
    the last token. next [1]: the next run; low, high [1]: the range of positions that the current run sees;
    visible_from, visible_to [1]: the range of keys that no row of the tile masks. Per thread: found, reduced [5]: these
    five values for some rows, and for all rows.
    """

    p: PagedAttention
    rows: int
    block: int
    warps: int

    def __post_init__(self) -> None:
        self.scratch = list[Buffer]()
        self.threads = self.warps * WARP
        self.all_rows = self.p.n * self.p.group
        self.grid = ceildiv(self.all_rows, self.rows)
        self.sink_blocks = -(-self.p.sink_size // self.block) if self.p.window else 0
        self.sequences, self.positions, self.ends, self.runs = (
            self.buffer(name, "shared", self.rows, dtype="int32") for name in ("sequences", "positions", "ends", "runs")
        )
        names = ("next", "low", "high", "visible_from", "visible_to")
        self.next, self.low, self.high, self.visible_from, self.visible_to = (
            self.buffer(name, "shared", 1, dtype="int32") for name in names
        )
        self.found, self.reduced = (self.buffer(name, "local", 5, dtype="int32") for name in ("found", "reduced"))

    def buffer(self, name: str, scope: str, *shape: int, dtype: str = "float32") -> Buffer:
        """A buffer that the kernel allocates."""
        self.scratch.append(buffer(name, shape, dtype, scope=scope))
        return self.scratch[-1]

    @property
    def shared_bytes(self) -> int:
        """The bytes of a thread block's buffers in shared memory."""
        sizes = (dt.nbytes(b.dtype) * prod(map(known_size, b.shape)) for b in self.scratch if b.scope == "shared")
        return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)

    # -- rows; ``row``: row of the grid, clamped to existing rows

    def token(self, row: PrimExpr) -> PrimExpr:
        return minimum(row, self.all_rows - 1) // self.p.group

    def head(self, row: PrimExpr, g: PrimExpr) -> PrimExpr:
        return g * self.p.group + minimum(row, self.all_rows - 1) % self.p.group

    # -- blocks that the current run sees: first those of the sink, then those of the window

    def first_block(self) -> PrimExpr:
        """The first block of the window that is not one of the sink."""
        if not self.p.window:
            return const(0, "int64")
        return maximum(as_index(self.low[0]) // self.block, self.sink_blocks)

    def count(self) -> PrimExpr:
        """The blocks that the run sees."""
        blocks = ceildiv(as_index(self.high[0]), self.block)
        return minimum(blocks, self.sink_blocks) + maximum(blocks - self.first_block(), 0)

    def start(self, i: PrimExpr) -> PrimExpr:
        """The first position of the i-th block that the run sees."""
        if not self.p.window:
            return i * self.block
        after = i - self.sink_blocks + self.first_block()
        return (te.select(i < self.sink_blocks, i, after) if self.sink_blocks else after) * self.block

    def first_seen(self, row: PrimExpr) -> PrimExpr:
        """The first position in the window of a row of the tile."""
        return self.p.window_start(self.positions[row]) if self.p.window else const(0, "int32")

    def sees_to(self, row: PrimExpr) -> PrimExpr:
        """The end of the keys in the window of a row of the tile."""
        if not (self.p.window and self.p.cross):
            return self.ends[row]
        return minimum(self.ends[row], self.positions[row] + self.p.window)

    def readable(self, j: PrimExpr) -> PrimExpr:
        """``j`` (int32), or, if the run does not see it, a position of the same block that has been written."""
        p, last = self.p, self.high[0] - 1
        if not p.window:
            return minimum(j, last)
        first = self.low[0]
        if not p.sink_size:
            return minimum(maximum(j, first), last)
        before = te.select(binary("==", first // self.block, j // self.block), first, const(p.sink_size - 1, "int32"))
        return minimum(te.select(logical_or(j < p.sink_size, j >= first), j, before), last)

    def score_of(self, product: PrimExpr, row: PrimExpr, run: PrimExpr, head: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The score of a row of the tile and the key at ``j``; masked for rows of other runs than the current one."""
        end = te.select(binary("==", self.runs[row], run), self.ends[row], const(0, "int32"))
        return self.p.masked_score(product, head, j, self.positions[row], end)
