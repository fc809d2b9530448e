"""TVMScript macros of tiles of queries; ``k`` is a ``tiles.Tiles``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from ...paged_attention import FARTHEST
from ..machine import WARP
from .warps import instruction


@T.macro
def attend_runs(k, tile, g, thread, attend_keys):
    """Call ``attend_keys(k, tile, g, run, thread)`` for each run of the tile."""
    stage_rows(k, tile, thread)
    while k.next[0] < T.int32(k.rows):
        run = k.next[0]
        T.tvm_storage_sync("shared")
        if thread // WARP < 1:
            find_ranges(k, run, thread)
        T.tvm_storage_sync("shared")
        attend_keys(k, tile, g, run, thread)
        T.tvm_storage_sync("shared")


@T.macro
def stage_rows(k, tile, thread):
    """Find the sequences and runs of the tile's rows; set ``next`` to the first run."""
    p = k.p
    if thread < k.rows:
        token = k.token(tile * k.rows + thread)
        k.sequences[thread] = T.Cast("int32", p.sequence(token))
        k.positions[thread] = p.position(token)
        k.ends[thread] = p.end(token)
    if thread < 1:
        k.next[0] = T.int32(0)
    T.tvm_storage_sync("shared")
    if thread < k.rows:
        k.found[0] = T.int32(0)
        for other in T.unroll(k.rows - 1):
            if other < thread and k.sequences[other] != k.sequences[other + 1]:
                k.found[0] = T.Cast("int32", other + 1)
        k.runs[thread] = T.Select(tile * k.rows + thread < k.all_rows, k.found[0], T.int32(k.rows))
    T.tvm_storage_sync("shared")


@T.macro
def find_ranges(k, run, lane):
    """Compute, in one warp, the ranges of positions that rows of a run see, and the next run."""
    k.found[0] = T.int32(k.rows)
    k.found[1] = T.int32(FARTHEST)
    k.found[2] = T.int32(0)
    k.found[3] = T.int32(0)
    k.found[4] = T.int32(FARTHEST)
    for i in T.unroll(T.ceildiv(k.rows, WARP)):
        row = T.min(i * WARP + lane, k.rows - 1)
        is_in_run = k.runs[row] == run
        k.found[0] = T.min(k.found[0], T.Select(k.runs[row] > run, k.runs[row], T.int32(k.rows)))
        k.found[1] = T.min(k.found[1], T.Select(is_in_run, k.first_seen(row), T.int32(FARTHEST)))
        k.found[2] = T.max(k.found[2], T.Select(is_in_run, k.ends[row], T.int32(0)))
        k.found[3] = T.max(k.found[3], k.first_seen(row))
        k.found[4] = T.min(k.found[4], T.Select(is_in_run, k.sees_to(row), T.int32(0)))
    instruction("redux.min.s32", k.reduced[0], k.found[0])
    instruction("redux.min.s32", k.reduced[1], k.found[1])
    instruction("redux.max.s32", k.reduced[2], k.found[2])
    instruction("redux.max.s32", k.reduced[3], k.found[3])
    instruction("redux.min.s32", k.reduced[4], k.found[4])
    if lane < 1:
        k.next[0] = k.reduced[0]
        k.low[0] = k.reduced[1]
        k.high[0] = k.reduced[2]
        k.visible_from[0] = k.reduced[3]
        k.visible_to[0] = k.reduced[4]
