"""TVMScript macros of latent attention on tensor cores; ``k`` is ``latent_tiles.LatentTiles``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....relax.ops.attention import NO_MAXIMUM
from ....script import T
from ..machine import WARP
from .mma_loops import LOG2_E, STEP, copy_keys, softmax, stage_pages, stage_queries
from .tile_loops import attend_runs
from .warps import add, instruction, reduce_lanes

WARP_SLOTS = 8
"""Slots whose scores one warp computes: the columns of mma.m16n8k16."""
MERGING = 64
"""Threads that merge the pieces of a row."""


@T.macro
def attend_tile(k, tile, piece, thread):
    stage_queries(k, tile, T.int64(0), thread)
    for h in T.unroll(2):
        head = k.head(tile * k.rows + k.row(thread, 2 * h), T.int64(0))
        k.row_max[h] = k.p.start_max(head, piece < 1) * T.float32(LOG2_E)
        k.row_sum[h] = T.if_then_else(thread % 4 < 1, k.p.start_sum(piece < 1), T.float32(0))
    for n in T.unroll(k.value_tiles):
        for x in T.unroll(4):
            k.acc[n, x] = T.float32(0)
    attend_runs(k, tile, piece, thread, attend_keys)
    reduce_lanes(k.row_sum, 2, k.other, add, 1, 4)
    if k.pieces > 1:
        store_piece(k, tile, piece, thread)
    else:
        store_tile(k, tile, thread)


@T.macro
def attend_keys(k, tile, piece, run, thread):
    """Attend to the blocks of a piece that the run sees; barriers follow pages, keys, scores and the keys' last use."""
    share = k.share(k.count())
    for n in range(T.max(T.min(k.count() - piece * share, share), T.int64(0))):
        i = piece * share + n
        start = k.start(i)
        stage_pages(k, run, i, thread)
        T.tvm_storage_sync("shared")
        copy_keys(k, T.int64(0), i % 2, thread)
        instruction("cp_async.wait", T.int32(0))
        if start + k.block > T.Cast("int64", k.high[0]):
            T.tvm_storage_sync("shared")
            clear_unseen(k, T.Cast("int32", start), thread)
        T.tvm_storage_sync("shared")
        multiply_keys(k, thread)
        T.tvm_storage_sync("shared")
        for n in T.unroll(k.score_tiles):
            for x in T.unroll(4):
                k.score[n, x] = k.scores[k.row(thread, x), n * 8 + k.column(thread, x)]
        softmax(k, tile, T.int64(0), run, T.Cast("int32", start), thread)
        add_values(k, thread)
        T.tvm_storage_sync("shared")


@T.macro
def clear_unseen(k, start, thread):
    """Zero the keys that the run does not see: these may hold any bits, also NaN, whose product with 0 is not 0."""
    for i in range(T.ceildiv(k.p.key * k.block, k.threads)):
        at = i * k.threads + thread
        slot = at % k.block
        if start + T.Cast("int32", slot) >= k.high[0]:
            if at // k.block < k.p.key:
                k.keys[at // k.block, slot] = T.Cast(k.p.q.dtype, T.float32(0))


@T.macro
def multiply_keys(k, thread):
    """Compute the scores of the rows at the warp's 8 slots. One ldmatrix loads the keys of two steps."""
    for x in T.unroll(4):
        k.part[x] = T.float32(0)
    first = thread // WARP * WARP_SLOTS
    for d in T.unroll(k.p.key // WARP):
        instruction(k.load_right, k.right[0], k.keys[d * WARP + thread % WARP, first])
        for step in T.unroll(2):
            element = d * WARP + step * STEP + k.matrix_column(thread)
            instruction(k.load_left, k.left[0], k.query[k.matrix_row(thread), element])
            instruction(k.mma, k.part[0], k.left[0], k.right[4 * step])
    for x in T.unroll(4):
        k.scores[k.row(thread, x), first + k.column(thread, x)] = k.part[x]


@T.macro
def add_values(k, thread):
    """Add the weighted values, for the warp's share of the elements."""
    for t in T.unroll(k.block // STEP):
        for x in T.unroll(4):
            instruction(k.convert, k.left[2 * x], k.score[2 * t + x // 2, x % 2 * 2])
        for e in T.unroll(k.value_tiles // 2):
            element = k.first_element(thread) + e * STEP + k.value_row(thread)
            instruction(k.load_left, k.right[0], k.keys[element, t * STEP + k.value_column(thread)])
            instruction(k.mma, k.acc[2 * e, 0], k.left[0], k.right[0])
            instruction(k.mma, k.acc[2 * e + 1, 0], k.left[0], k.right[4])


@T.macro
def store_tile(k, tile, thread):
    for h in T.unroll(2):
        row = tile * k.rows + k.row(thread, 2 * h)
        scale = T.float32(1) / T.Select(k.row_sum[h] > T.float32(0), k.row_sum[h], T.float32(1))
        if row < k.all_rows:
            for n in T.unroll(k.value_tiles):
                for x in T.vectorized(2):
                    e = k.first_element(thread) + n * 8 + thread % 4 * 2 + x
                    k.p.out[k.token(row), k.head(row, T.int64(0)), e] = T.Cast(
                        k.p.out.dtype, k.acc[n, 2 * h + x] * scale
                    )


@T.macro
def store_piece(k, tile, piece, thread):
    """Store sums and maxima, and the weighted values of rows that have seen a key."""
    for h in T.unroll(2):
        row = tile * k.rows + k.row(thread, 2 * h)
        token = k.token(row)
        head = k.head(row, T.int64(0))
        if row < k.all_rows:
            if thread % WARP % 4 + thread // WARP < 1:
                k.partial_max[token, head, piece] = k.row_max[h]
                k.partial_sum[token, head, piece] = k.row_sum[h]
            if k.row_sum[h] > T.float32(0):
                for n in T.unroll(k.value_tiles):
                    for x in T.vectorized(2):
                        e = k.first_element(thread) + n * 8 + thread % 4 * 2 + x
                        k.partial[token, head, piece, e] = k.acc[n, 2 * h + x]


@T.macro
def merge_pieces(k, token, head, thread):
    """Merge the pieces of a row in order; ``weight`` [3]: overall maximum, sum, factor of the current piece."""
    k.weight[0] = T.float32(NO_MAXIMUM)
    k.weight[1] = T.float32(0)
    for c in T.unroll(k.merged_elements):
        k.merged[c] = T.float32(0)
    for piece in range(k.parts):
        k.weight[0] = T.max(k.weight[0], k.partial_max[token, head, piece])
    for piece in range(k.parts):
        if k.partial_sum[token, head, piece] > T.float32(0):
            k.weight[2] = k.partial_max[token, head, piece] - k.weight[0]
            instruction("ex2.approx.f32", k.weight[2], k.weight[2])
            k.weight[1] = k.weight[1] + k.partial_sum[token, head, piece] * k.weight[2]
            for c in T.unroll(k.merged_elements):
                k.merged[c] = k.merged[c] + k.partial[token, head, piece, c * MERGING + thread] * k.weight[2]
    scale = T.float32(1) / T.Select(k.weight[1] > T.float32(0), k.weight[1], T.float32(1))
    for c in T.unroll(k.merged_elements):
        k.p.out[token, head, c * MERGING + thread] = T.Cast(k.p.out.dtype, k.merged[c] * scale)
