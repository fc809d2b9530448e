"""TVMScript macros of tiles of queries; ``k`` is a ``tiles.Tiles``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from ...paged_attention import FARTHEST


@T.macro
def attend_runs(k, tile, g, thread, attend_block):
    """Call ``attend_block(k, tile, g, run, start, thread)`` for each block of keys that each run of the tile sees."""
    stage_rows(k, tile, thread)
    for run in range(k.rows):
        if k.runs[run] == T.Cast("int32", run):
            find_range(k, T.Cast("int32", run))
            for i in range(k.count()):
                attend_block(k, tile, g, T.Cast("int32", run), k.start(i), thread)


@T.macro
def stage_rows(k, tile, thread):
    """Find the sequences and runs of the tile's rows."""
    p = k.p
    for i in range(T.ceildiv(k.rows, k.threads)):
        row = i * k.threads + thread
        if row < k.rows:
            token = k.token(tile * k.rows + row)
            k.sequences[row] = T.Cast("int32", p.sequence(token))
            k.positions[row] = p.position(token)
            k.ends[row] = p.end(token)
    T.tvm_storage_sync("shared")
    for i in range(T.ceildiv(k.rows, k.threads)):
        row = i * k.threads + thread
        if row < k.rows:
            first = T.decl_buffer((1,), "int32", scope="local")
            first[0] = T.int32(0)
            for other in T.unroll(k.rows - 1):
                if other < row and k.sequences[other] != k.sequences[other + 1]:
                    first[0] = T.Cast("int32", other + 1)
            k.runs[row] = T.Select(tile * k.rows + row < k.all_rows, first[0], T.int32(-1))
    T.tvm_storage_sync("shared")


@T.macro
def find_range(k, run):
    """Set the range of positions that the rows of a run see."""
    k.low[0] = T.int32(FARTHEST)
    k.high[0] = T.int32(0)
    for row in range(k.rows):
        if k.runs[row] == run:
            k.low[0] = T.min(k.low[0], k.first_seen(row))
            k.high[0] = T.max(k.high[0], k.stop(row))
