"""TVMScript macros of attention on a CPU; ``attention.py`` describes the algorithm, ``k`` is its ``_Kernel``.

Shapes: query [rows, D], acc [rows, E], score [rows of a row tile, keys of a block]; row_max, row_sum, ends [rows].
"""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....relax.ops.attention import NO_MAXIMUM
from ....script import T
from ...paged_attention import FARTHEST
from .lanes import add, halve


@T.macro
def attend_tile(k, item):
    g = item % k.kv_heads
    token = (k.count - 1 - item // k.kv_heads) * k.step  # longest first: the last tokens attend to most positions
    count = T.min(k.step, k.n - token)
    for t in range(count):
        stage_queries(k, token + t, t * k.group, g, T.int64(0))
    clear_spare_rows(k, count * k.group)
    k.stop[0] = T.int64(0)
    while k.stop[0] < count:
        start = k.stop[0]
        begin_run(k, token, count, start)
        attend_keys(k, k.sequence(token + start), g, T.int64(0), T.Cast("int64", k.high[0]), count * k.group)
    for t in range(count):
        store_result(k, token + t, t * k.group, g)


@T.macro
def begin_run(k, token, count, start):
    k.stop[0] = start + 1
    while k.stop[0] < count and k.token_seq[T.min(token + k.stop[0], k.n - 1)] == k.token_seq[token + start]:
        k.stop[0] = k.stop[0] + 1
    k.low[0] = T.int32(FARTHEST)
    k.high[0] = T.int32(0)
    for t in range(count):
        if start <= t and t < k.stop[0]:
            k.high[0] = T.max(k.high[0], k.end(token + t))
            k.low[0] = T.min(k.low[0], k.first_seen(token + t) if k.window else T.int32(0))
            for h in range(k.group):
                k.ends[t * k.group + h] = k.end(token + t)
        else:
            for h in range(k.group):
                k.ends[t * k.group + h] = T.int32(0)


@T.macro
def stage_queries(k, token, row0, g, begin):
    for h in range(k.group):
        row = row0 + h
        head = g * k.group + h
        for d in T.vectorized(k.key):
            k.query[row, d] = T.Cast("float32", k.q[token, k.first + head, d]) * T.float32(k.scale)
        if k.pairs:
            for i in T.vectorized(k.pairs):
                x = k.query[row, k.pair(i)]
                y = k.query[row, k.partner(i)]
                k.query[row, k.pair(i)] = x * k.query_cos(i, token) - y * k.query_sin(i, token)
                k.query[row, k.partner(i)] = y * k.query_cos(i, token) + x * k.query_sin(i, token)
        if k.narrow:
            round_query(k, row)
        for e in T.vectorized(k.padded_value):
            k.acc[row, e] = T.float32(0)
        k.row_max[row] = k.start_max(head, begin < 1)
        k.row_sum[row] = k.start_sum(begin < 1)
        k.positions[row] = k.position(token)


@T.macro
def round_query(k, row):
    for c in range(k.key // k.lanes):
        k.round(k.query_pairs[row, c * k.lanes], k.query[row, c * k.lanes])


@T.macro
def clear_spare_rows(k, rows):
    for row in range(rows, T.ceildiv(rows, k.row_tile) * k.row_tile):
        for d in T.vectorized(k.key):
            k.query[row, d] = T.float32(0)
        if k.narrow:
            round_query(k, row)
        for e in T.vectorized(k.padded_value):
            k.acc[row, e] = T.float32(0)
        k.row_max[row] = T.float32(NO_MAXIMUM)
        k.row_sum[row] = T.float32(0)
        k.positions[row] = T.int32(0)
        k.ends[row] = T.int32(0)


@T.macro
def store_result(k, token, row0, g):
    for h in range(k.group):
        row_sum = k.row_sum[row0 + h]
        scale = T.float32(1) / T.Select(row_sum > T.float32(0), row_sum, T.float32(1))
        for e in T.vectorized(k.value):
            k.out[token, g * k.group + h, e] = T.Cast(k.out.dtype, k.acc[row0 + h, e] * scale)


# -- pieces of a context -----------------------------------------------------------------------------------------------


@T.macro
def count_pieces(k):
    k.max_pieces[0] = T.int64(1)
    for t in range(k.n):
        k.max_pieces[0] = T.max(k.max_pieces[0], k.pieces(t))


@T.macro
def attend_piece(k, item):
    g = item % k.kv_heads
    token = item // k.kv_heads % k.n
    piece = item // (k.kv_heads * k.n)
    if piece < T.max(k.pieces(token), 1):
        begin = piece * k.piece_length(token)
        stage_queries(k, token, 0, g, begin)
        clear_spare_rows(k, k.group)
        for h in range(k.group):
            k.ends[h] = k.end(token)
        k.low[0] = k.first_seen(token) if k.window else T.int32(0)
        end = T.min(T.Cast("int64", k.end(token)), begin + k.piece_length(token))
        attend_keys(k, k.sequence(token), g, begin, end, k.group)
        if k.pieces(token) <= 1:
            store_result(k, token, 0, g)
        else:
            for h in range(k.group):
                for e in T.vectorized(k.value):
                    k.partial[token, g * k.group + h, piece, e] = k.acc[h, e]
                k.partial_max[token, g * k.group + h, piece] = k.row_max[h]
                k.partial_sum[token, g * k.group + h, piece] = k.row_sum[h]


@T.macro
def merge_pieces(k, item):
    token = item // k.heads
    head = item % k.heads
    pieces = k.pieces(token)
    if pieces > 1:
        total = T.decl_buffer((2,), "float32", scope="local")  # maximum and sum of the row
        acc = T.decl_buffer((k.value,), "float32", scope="local")
        total[0] = T.float32(NO_MAXIMUM)
        total[1] = T.float32(0)
        for p in range(pieces):
            total[0] = T.max(total[0], k.partial_max[token, head, p])
        for e in T.vectorized(k.value):
            acc[e] = T.float32(0)
        for p in range(pieces):
            weight = T.exp(k.partial_max[token, head, p] - total[0])
            total[1] = total[1] + weight * k.partial_sum[token, head, p]
            for e in T.vectorized(k.value):
                acc[e] = acc[e] + weight * k.partial[token, head, p, e]
        scale = T.float32(1) / T.Select(total[1] > T.float32(0), total[1], T.float32(1))
        for e in T.vectorized(k.value):
            k.out[token, head, e] = T.Cast(k.out.dtype, acc[e] * scale)


# -- blocks of keys and values -----------------------------------------------------------------------------------------


@T.macro
def attend_keys(k, sequence, g, begin, end, rows):
    """Attend to positions [begin, end), block by block; ``begin`` is the start of a block."""
    seen = T.Cast("int64", k.low[0]) // k.block * k.block
    for b in range(T.max(begin, T.int64(0) if k.sink_size else seen) // k.block, T.ceildiv(end, k.block)):
        if k.sink_size:
            if b * k.block < k.sink_size or b * k.block >= seen:
                attend_block(k, sequence, g, b * k.block, end, rows)
        else:
            attend_block(k, sequence, g, b * k.block, end, rows)


@T.macro
def attend_block(k, sequence, g, j, end, rows):
    for i in T.unroll(k.block // k.page + k.ahead):
        k.pages[i] = k.page_of(sequence, j + i * k.page)
    count = T.min(k.block, end - j)
    if k.scaled:
        stage_scales(k, g, j, count)
    if k.narrow:
        stage_key_pairs(k, g)
        stage_value_pairs(k, g, j, count)
    elif k.tiles.staged:
        stage_keys(k, g, j)
        stage_values(k, g, j, count)
    for tile in range(T.ceildiv(rows, k.row_tile)):
        k.last[0] = T.int32(0)
        for r in T.unroll(k.row_tile):
            k.last[0] = T.max(k.last[0], k.ends[tile * k.row_tile + r])
        if j < T.Cast("int64", k.last[0]):
            seen = T.min(count, T.Cast("int64", k.last[0]) - j)
            score_keys(k, g, tile * k.row_tile, j, seen)
            softmax(k, tile * k.row_tile, seen)
            add_values(k, g, tile * k.row_tile, j, seen)


@T.macro
def stage_scales(k, g, j, count):
    """The scales of the block's slots; 0 for pages that nothing has been written to, or that may have been freed."""
    for i in range(k.block // k.page):
        page = k.pages[i]
        if i * k.page < count and (k.in_window(j + i * k.page) if k.window else True):
            for s in T.vectorized(k.page):
                k.key_scales[i * k.page + s] = k.key_scale(page, g, s)
            for s in T.vectorized(k.page):
                k.value_scales[i * k.page + s] = k.value_scale(page, g, s)
        else:
            for s in T.vectorized(k.page):
                k.key_scales[i * k.page + s] = T.float32(0)
            for s in T.vectorized(k.page):
                k.value_scales[i * k.page + s] = T.float32(0)


@T.macro
def stage_keys(k, g, j):
    for i in range(k.block // k.page):
        page = k.pages[i]
        for d in range(k.key):
            for s in T.vectorized(k.page):
                k.keys[d, i * k.page + s] = T.Cast("float32", k.k_pages[k.layer, page, g, d, s])
        if k.inline:
            for p in range(k.pairs):
                for s in T.vectorized(k.page):
                    cos = k.cos(p, j + i * k.page + s)
                    sin = k.sin(p, j + i * k.page + s)
                    x = k.keys[k.pair(p), i * k.page + s]
                    y = k.keys[k.partner(p), i * k.page + s]
                    k.keys[k.pair(p), i * k.page + s] = x * cos - y * sin
                    k.keys[k.partner(p), i * k.page + s] = y * cos + x * sin


@T.macro
def stage_key_pairs(k, g):
    for i in range(k.block // k.page):
        page = k.pages[i]
        for p in range(k.key // 2):
            for c in T.unroll(k.page // k.lanes):
                for lane in T.vectorized(k.lanes):
                    slot = c * k.lanes + lane
                    k.low_half[lane] = T.Cast("float32", k.k_pages[k.layer, page, g, p * 2, slot])
                    k.high_half[lane] = T.Cast("float32", k.k_pages[k.layer, page, g, p * 2 + 1, slot])
                k.join(k.keys[p, i * k.page + c * k.lanes])


@T.macro
def stage_value_pairs(k, g, j, count):
    for i in range(T.ceildiv(count, k.page)):
        page = k.pages[i]
        for s in range(k.page // 2):
            if k.window:
                if k.in_window(j + i * k.page):
                    join_values(k, page, g, i * (k.page // 2) + s, s * 2)
                else:
                    for e in T.vectorized(k.value):
                        k.values[i * (k.page // 2) + s, e] = T.uint32(0)
            else:
                join_values(k, page, g, i * (k.page // 2) + s, s * 2)
    if count % 2 > 0:  # the slot after the last one may hold anything
        for e in T.vectorized(k.value):
            k.values[count // 2, e] = k.values[count // 2, e] & T.uint32(0xFFFF)


@T.macro
def join_values(k, page, g, row, slot):
    """Stage the values of ``slot`` and the next one."""
    for c in T.unroll(k.value // k.lanes):
        for lane in T.vectorized(k.lanes):
            k.low_half[lane] = k.stored_value(page, g, slot, c * k.lanes + lane)
            k.high_half[lane] = k.stored_value(page, g, slot + 1, c * k.lanes + lane)
        k.join(k.values[row, c * k.lanes])


@T.macro
def stage_values(k, g, j, count):
    for i in range(T.ceildiv(count, k.page)):
        page = k.pages[i]
        for s in range(k.page):
            if k.window:
                if k.in_window(j + i * k.page):
                    for e in T.vectorized(k.value):
                        k.values[i * k.page + s, e] = k.stored_value(page, g, s, e)
                else:
                    for e in T.vectorized(k.value):
                        k.values[i * k.page + s, e] = T.float32(0)
            else:
                for e in T.vectorized(k.value):
                    k.values[i * k.page + s, e] = k.stored_value(page, g, s, e)


@T.macro
def score_keys(k, g, row, j, count):
    """``score[r, i]`` = score of row ``row + r`` at position ``j + i``, for the tiles of the first ``count``."""
    for c in T.unroll(k.block // (k.tiles.key_vectors * k.lanes)):
        if c * k.tiles.key_vectors * k.lanes < count:
            score_vectors(k, g, row, j, c * k.tiles.key_vectors)


@T.macro
def score_vectors(k, g, row, j, first):
    """The scores of ``key_vectors`` vectors of keys from the vector ``first`` on."""
    lanes = k.lanes
    for r in T.unroll(k.row_tile):
        for v in T.unroll(k.tiles.key_vectors):
            for lane in T.vectorized(lanes):
                k.key_sums[r, v, lane] = T.float32(0)
    if k.narrow:
        for p in range(k.key // 2):
            for v in T.unroll(k.tiles.key_vectors):
                for r in T.unroll(k.row_tile):
                    k.add_products(
                        k.key_sums[r, v, 0],
                        k.keys[p, (first + v) * lanes],
                        k.query_pairs[row + r, p * 2],
                    )
    else:
        for d in range(k.key):
            prefetch_keys(k, g, d, first * lanes, k.tiles.key_vectors * lanes)
            for r in T.unroll(k.row_tile):  # a factor at a time, so that all vectors of keys stay in registers
                for v in T.unroll(k.tiles.key_vectors):
                    for lane in T.vectorized(lanes):
                        k.key_sums[r, v, lane] = k.key_sums[r, v, lane] + k.query[row + r, d] * k.key_at(
                            g, d, (first + v) * lanes, lane
                        )
    for r in T.unroll(k.row_tile):
        for v in T.unroll(k.tiles.key_vectors):
            for lane in T.vectorized(lanes):
                i = (first + v) * lanes + lane
                k.score[r, i] = k.scored(
                    k.key_sums[r, v, lane],
                    row + r,
                    g * k.group + (row + r) % k.group,
                    i,
                    T.Cast("int32", j) + T.Cast("int32", i),
                )


@T.macro
def prefetch_keys(k, g, d, first, count):
    """Prefetch element ``d`` of ``count`` keys from ``first`` on, ``ahead`` pages after those of the block."""
    if k.ahead:
        for i in T.unroll(T.ceildiv(count, k.key_run)):
            slot = first + i * k.key_run
            k.prefetch(k.k_pages[k.layer, k.pages[slot // k.page + k.ahead], g, d, slot % k.page])


@T.macro
def softmax(k, row, count):
    """Online softmax over ``count`` keys, rounded up to tiles: weights ``exp(score - new_max)``.

    ``correction`` rescales the earlier sums to the new maximum.
    """
    for r in T.unroll(k.row_tile):
        for lane in T.vectorized(k.lanes):
            k.fold[lane] = k.score[r, lane]
        for c in range(T.ceildiv(count, k.tiles.key_vectors * k.lanes)):
            for v in T.unroll(k.tiles.key_vectors):
                for lane in T.vectorized(k.lanes):
                    k.fold[lane] = T.max(k.fold[lane], k.score[r, (c * k.tiles.key_vectors + v) * k.lanes + lane])
        halve(k.fold, k.lanes, maximum)
        k.new_max[r] = T.max(k.row_max[row + r], k.fold[0])
    for r in T.vectorized(k.row_tile):
        k.correction[r] = T.exp(k.row_max[row + r] - k.new_max[r])
        k.row_max[row + r] = k.new_max[r]
    for r in range(k.row_tile):
        for lane in T.vectorized(k.lanes):
            k.fold[lane] = T.float32(0)
        for c in range(T.ceildiv(count, k.tiles.key_vectors * k.lanes)):
            for v in T.unroll(k.tiles.key_vectors):
                i = (c * k.tiles.key_vectors + v) * k.lanes
                for lane in T.vectorized(k.lanes):
                    k.weights[lane] = k.weight(k.score[r, i + lane] - k.new_max[r])
                    k.fold[lane] = k.fold[lane] + k.weights[lane]
                store_weights(k, r, i)
        halve(k.fold, k.lanes, add)
        k.row_sum[row + r] = k.row_sum[row + r] * k.correction[r] + k.fold[0]


@T.macro
def store_weights(k, r, i):
    """Store the weights of a vector of keys for ``add_values``, which reads unscaled values."""
    if k.scaled:
        for lane in T.vectorized(k.lanes):
            k.weights[lane] = k.weights[lane] * k.value_scales[i + lane]
    if k.narrow:
        k.round(k.weight_pairs[r, i], k.weights[0])
    else:
        for lane in T.vectorized(k.lanes):
            k.score[r, i + lane] = k.weights[lane]


@T.macro
def prefetch_values(k, p, g, slot, first, count):
    """Prefetch elements from ``first`` on of the value in a slot, of a page ``ahead`` of the block's page ``p``."""
    if k.ahead:
        for line in T.unroll(T.ceildiv(count, k.line)):
            k.prefetch(k.value_place(k.pages[p + k.ahead], g, slot, first + line * k.line))


@T.macro
def add_values(k, g, row, j, count):
    """``acc = acc * correction + weights @ values`` for the rows of a row tile."""
    rows, vectors, lanes = k.tiles.value_rows, k.tiles.value_vectors, k.lanes
    for c in T.unroll(k.tiles.value_tiles):
        for s in T.unroll(k.row_tile // rows):
            for r in T.unroll(rows):
                for v in T.unroll(vectors):
                    for lane in T.vectorized(lanes):
                        before = k.acc[row + s * rows + r, (c * vectors + v) * lanes + lane]
                        k.value_sums[r, v, lane] = before * k.correction[s * rows + r]
            if k.narrow:
                for i in range(T.ceildiv(count, 2)):
                    for v in T.unroll(vectors):
                        for r in T.unroll(rows):
                            k.add_products(
                                k.value_sums[r, v, 0],
                                k.values[i, (c * vectors + v) * lanes],
                                k.weight_pairs[s * rows + r, i * 2],
                            )
            elif k.tiles.staged:
                for i in range(count):
                    for r in T.unroll(rows):
                        for v in T.unroll(vectors):
                            for lane in T.vectorized(lanes):
                                value = k.values[i, (c * vectors + v) * lanes + lane]
                                k.value_sums[r, v, lane] = k.value_sums[r, v, lane] + k.score[s * rows + r, i] * value
            else:
                for p in range(T.ceildiv(count, k.page)):
                    page = k.pages[p]
                    read = T.min(k.page, count - p * k.page)
                    for i in range(T.Select(k.in_window(j + p * k.page), read, T.int64(0)) if k.window else read):
                        prefetch_values(k, p, g, i, c * vectors * lanes, vectors * lanes)
                        for r in T.unroll(rows):
                            for v in T.unroll(vectors):
                                for lane in T.vectorized(lanes):
                                    value = k.stored_value(page, g, i, (c * vectors + v) * lanes + lane)
                                    weight = k.score[s * rows + r, p * k.page + i]
                                    k.value_sums[r, v, lane] = k.value_sums[r, v, lane] + weight * value
            for r in T.unroll(rows):
                for v in T.unroll(vectors):
                    for lane in T.vectorized(lanes):
                        k.acc[row + s * rows + r, (c * vectors + v) * lanes + lane] = k.value_sums[r, v, lane]
