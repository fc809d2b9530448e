"""TVMScript macros of tiles on tensor cores; ``k`` is ``mma_tiles.MmaTiles``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

import math

from ....ir.expr import maximum
from ....script import T
from .byte_pages import VECTOR, convert_keys, convert_values, copy_scales, scale_scores
from .tile_loops import attend_runs
from .warps import add, instruction, load_vector, reduce_lanes

STEP = 16  # elements of the inner axis (K) in one mma, and columns of two mma
LOG2_E = 1 / math.log(2)


@T.macro
def attend_tile(k, tile, g, thread):
    stage_queries(k, tile, g, thread)
    for h in T.unroll(2):
        k.row_max[h] = k.p.start_max(k.head(tile * k.rows + k.row(thread, 2 * h), g)) * T.float32(LOG2_E)
        k.row_sum[h] = T.if_then_else(thread % 4 < 1, k.p.start_sum(), T.float32(0))
    for n in T.unroll(k.value_tiles):
        for x in T.unroll(4):
            k.acc[n, x] = T.float32(0)
    attend_runs(k, tile, g, thread, attend_keys)
    store_tile(k, tile, g, thread)


@T.macro
def stage_queries(k, tile, g, thread):
    """Copy the tile's queries, rotated."""
    if k.p.pairs:
        stage_pairs(k, tile, g, thread, 1 if k.p.interleaved or k.p.pairs % VECTOR else VECTOR)
    if k.rest:
        stage_rest(k, tile, g, thread, 1 if k.rest % VECTOR else VECTOR)


@T.macro
def stage_pairs(k, tile, g, thread, step):
    for i in range(T.ceildiv(k.rows * k.p.pairs, k.threads * step)):
        at = (i * k.threads + thread) * step
        row = at // k.p.pairs
        if row < k.rows:
            if step > 1:
                rotate_vector(k, tile * k.rows + row, row, at % k.p.pairs, g)
            else:
                rotate_pair(k, tile * k.rows + row, row, at % k.p.pairs, g)


@T.macro
def stage_rest(k, tile, g, thread, width):
    """Copy the elements after the rotated ones."""
    for i in range(T.ceildiv(k.rows * k.rest, k.threads * width)):
        at = (i * k.threads + thread) * width
        r = at // k.rest
        if r < k.rows:
            row = tile * k.rows + r
            d = 2 * k.p.pairs + at % k.rest
            load_vector(k.vectors, 0, k.p.q[k.token(row), k.head(row, g) + k.p.first, d], width)
            for x in T.vectorized(width):
                k.query[r, d + x] = k.vectors[0, x]


@T.macro
def rotate_vector(k, row, r, i, g):
    """Rotate the pairs from ``i`` on of a row, which is row r of the tile."""
    p = k.p
    token = k.token(row)
    head = k.head(row, g) + p.first
    load_vector(k.vectors, 0, p.q[token, head, i], VECTOR)
    load_vector(k.vectors, 1, p.q[token, head, i + p.pairs], VECTOR)
    for half in T.unroll(2):
        load_vector(k.cosines, half, p.query_cos(i + half * (VECTOR // 2), token), VECTOR // 2)
        load_vector(k.sines, half, p.query_sin(i + half * (VECTOR // 2), token), VECTOR // 2)
    for c in T.unroll(VECTOR):
        x = T.Cast("float32", k.vectors[0, c])
        y = T.Cast("float32", k.vectors[1, c])
        cos = k.cosines[c // (VECTOR // 2), c % (VECTOR // 2)]
        sin = k.sines[c // (VECTOR // 2), c % (VECTOR // 2)]
        k.vectors[0, c] = T.Cast(p.q.dtype, x * cos - y * sin)
        k.vectors[1, c] = T.Cast(p.q.dtype, y * cos + x * sin)
    for c in T.vectorized(VECTOR):
        k.query[r, i + c] = k.vectors[0, c]
    for c in T.vectorized(VECTOR):
        k.query[r, i + p.pairs + c] = k.vectors[1, c]


@T.macro
def rotate_pair(k, row, r, i, g):
    p = k.p
    token = k.token(row)
    head = k.head(row, g) + p.first
    x = T.Cast("float32", p.q[token, head, p.pair(i)])
    y = T.Cast("float32", p.q[token, head, p.partner(i)])
    cos = p.query_cos(i, token)
    sin = p.query_sin(i, token)
    k.query[r, p.pair(i)] = T.Cast(p.q.dtype, x * cos - y * sin)
    k.query[r, p.partner(i)] = T.Cast(p.q.dtype, y * cos + x * sin)


@T.macro
def attend_keys(k, tile, g, run, thread):
    """Attend to all blocks that the run sees. Each has two barriers: after the keys and after the values arrive."""
    count = k.count()
    if count > 0:
        stage_pages(k, run, T.int64(0), thread)
        T.tvm_storage_sync("shared")
        copy_keys(k, g, T.int64(0), thread)
        for i in range(count):
            start = k.start(i)
            instruction("cp_async.wait", T.int32(0))
            if k.is_packed:
                convert_keys(k, thread)
            T.tvm_storage_sync("shared")
            copy_values(k, g, start, i % 2, thread)
            if i + 1 < count:
                stage_pages(k, run, i + 1, thread)
            multiply_keys(k, thread)
            if k.p.scaled:
                scale_scores(k, thread)
            instruction("cp_async.wait", T.int32(0))
            if k.is_packed:
                convert_values(k, start, thread)
            T.tvm_storage_sync("shared")
            if i + 1 < count:
                copy_keys(k, g, (i + 1) % 2, thread)
            softmax(k, tile, g, run, T.Cast("int32", start), thread)
            add_values(k, thread)


# -- copies ------------------------------------------------------------------------------------------------------------


@T.macro
def stage_pages(k, run, i, thread):
    """Look up the pages of block i."""
    if thread < k.block // k.copied:
        sequence = T.Cast("int64", k.sequences[run])
        k.pages[i % 2, thread] = k.p.page_of(sequence, k.start(i) + thread * k.copied)


@T.macro
def copy_keys(k, g, parity, thread):
    """Start to copy the keys of a block, whose pages are ``pages[parity]``, and all scales."""
    p = k.p
    keys = k.packed_keys if k.is_packed else k.keys
    vectors = k.block // k.copied
    vector = thread % vectors
    page = k.pages[parity, vector]
    slot = vector % (p.page // k.copied) * k.copied
    for i in T.unroll(T.ceildiv(p.key * vectors, k.threads)):
        d = i * (k.threads // vectors) + thread // vectors
        if d < p.key:
            instruction(k.copy, keys[d, vector * k.copied], p.k_pages[p.layer, page, g, d, slot])
    if p.scaled:
        copy_scales(k, g, parity, thread)
    instruction("cp_async.commit")


@T.macro
def copy_values(k, g, start, parity, thread):
    """Start to copy the values of the block at ``start``; positions that are not visible are replaced by others."""
    p = k.p
    values = k.packed_values if k.is_packed else k.values
    vectors = p.value // k.copied
    for i in T.unroll(T.ceildiv(k.block * vectors, k.threads)):
        at = i * k.threads + thread
        row = at // vectors
        if row < k.block:
            j = T.Cast("int64", k.readable(T.Cast("int32", start + row)))
            page = k.pages[parity, (j - start) // k.copied]
            e = at % vectors * k.copied
            instruction(k.copy, values[row, e], p.v_pages[p.layer, page, g, j % p.page, e])
    instruction("cp_async.commit")


# -- matmuls and softmax -----------------------------------------------------------------------------------------------


@T.macro
def multiply_keys(k, thread):
    for n in T.unroll(k.score_tiles):
        for x in T.unroll(4):
            k.score[n, x] = T.float32(0)
    row = thread // 32 * 16 + k.matrix_row(thread)
    for d in T.unroll(k.p.key // STEP):
        instruction(k.load_left, k.left[0], k.query[row, d * STEP + k.matrix_column(thread)])
        for n in T.unroll(k.score_tiles // 2):
            element = d * STEP + k.matrix_row(thread)
            instruction(k.load_right, k.right[0], k.keys[element, n * STEP + k.matrix_column(thread)])
            instruction(k.mma, k.score[2 * n, 0], k.left[0], k.right[0])
            instruction(k.mma, k.score[2 * n + 1, 0], k.left[0], k.right[4])


@T.macro
def softmax(k, tile, g, run, start, thread):
    """Replace scores by weights, and rescale the sums to the new maxima."""
    is_visible = start >= k.visible_from[0] and start + k.block <= k.visible_to[0]
    if k.is_plain:
        if is_visible:
            for n in T.unroll(k.score_tiles):
                for x in T.unroll(4):
                    k.score[n, x] = k.plain_score(k.score[n, x])
        else:
            mask_scores(k, tile, g, run, start, thread)
    else:
        mask_scores(k, tile, g, run, start, thread)
    for h in T.unroll(2):
        k.new_max[h] = k.score[0, 2 * h]
        for n in T.unroll(k.score_tiles):
            k.new_max[h] = T.max(k.new_max[h], T.max(k.score[n, 2 * h], k.score[n, 2 * h + 1]))
    reduce_lanes(k.new_max, 2, k.other, maximum, 1, 4)
    for h in T.unroll(2):
        k.new_max[h] = T.max(k.new_max[h], k.row_max[h])
        k.other[0] = k.row_max[h] - k.new_max[h]
        instruction("ex2.approx.f32", k.other[0], k.other[0])
        k.row_max[h] = k.new_max[h]
        k.row_sum[h] = k.row_sum[h] * k.other[0]
        for n in T.unroll(k.score_tiles):
            for x in T.unroll(2):
                k.score[n, 2 * h + x] = k.score[n, 2 * h + x] - k.new_max[h]
                instruction("ex2.approx.f32", k.score[n, 2 * h + x], k.score[n, 2 * h + x])
                k.row_sum[h] = k.row_sum[h] + k.score[n, 2 * h + x]
        for n in T.unroll(k.value_tiles):
            for x in T.unroll(2):
                k.acc[n, 2 * h + x] = k.acc[n, 2 * h + x] * k.other[0]


@T.macro
def mask_scores(k, tile, g, run, start, thread):
    for n in T.unroll(k.score_tiles):
        for x in T.unroll(4):
            row = k.row(thread, x)
            j = start + T.Cast("int32", n * 8 + k.column(thread, x))
            k.score[n, x] = k.any_score(k.score[n, x], row, run, k.head(tile * k.rows + row, g), j)


@T.macro
def add_values(k, thread):
    for t in T.unroll(k.block // STEP):
        for x in T.unroll(4):
            instruction(k.convert, k.left[2 * x], k.score[2 * t + x // 2, x % 2 * 2])
        for e in T.unroll(k.p.value // STEP):
            slot = t * STEP + k.matrix_row(thread)
            instruction(k.load_right, k.right[0], k.values[slot, e * STEP + k.matrix_column(thread)])
            instruction(k.mma, k.acc[2 * e, 0], k.left[0], k.right[0])
            instruction(k.mma, k.acc[2 * e + 1, 0], k.left[0], k.right[4])


@T.macro
def store_tile(k, tile, g, thread):
    reduce_lanes(k.row_sum, 2, k.other, add, 1, 4)
    for h in T.unroll(2):
        row = tile * k.rows + k.row(thread, 2 * h)
        scale = T.float32(1) / T.Select(k.row_sum[h] > T.float32(0), k.row_sum[h], T.float32(1))
        if row < k.all_rows:
            for n in T.unroll(k.value_tiles):
                for x in T.vectorized(2):
                    e = n * 8 + thread % 4 * 2 + x
                    k.p.out[k.token(row), k.head(row, g), e] = T.Cast(k.p.out.dtype, k.acc[n, 2 * h + x] * scale)
