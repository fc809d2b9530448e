"""TVMScript macros of decoding; ``k`` is ``decode._Decode``, which has the buffers, ``p`` and ``s`` its sizes."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....relax.ops.attention import NO_MAXIMUM
from ....script import T
from ..machine import WARP
from .arrivals import arrive
from .warps import add, load_vector, reduce_lanes, scatter_sums, widen


@T.macro
def attend(k, token, tile, part, warp, lane):
    attend_pieces(k, token, tile, part, warp, lane)
    arrive(k.arrived, k.arrivals[k.counter(token, tile)], k.grid, warp < 1 and lane < 1)
    if k.arrived[0] == T.Cast("uint32", k.grid - 1):
        merge_pieces(k, token, tile, warp, lane)


@T.macro
def attend_pieces(k, token, tile, part, warp, lane):
    stage_queries(k, token, tile, T.Cast("int64", warp) * WARP + lane)
    T.tvm_storage_sync("shared")
    count = k.count(token)
    length = k.piece_strips(count)
    pieces = T.ceildiv(count, length)
    for i in range(T.max(T.ceildiv(pieces - part, k.grid), 0)):
        piece = part + i * k.grid
        clear(k, tile, piece, warp, lane)
        attend_strips(k, token, tile, piece * length, T.min(count, (piece + 1) * length), warp, lane)
        merge_warps(k, token, tile, piece, warp, lane)


@T.macro
def stage_queries(k, token, tile, thread):
    p = k.p
    s = k.s
    for i in range(T.ceildiv(k.padded_key * k.padded_rows, k.warps * WARP)):
        at = i * k.warps * WARP + thread
        h = at % k.padded_rows
        d = at // k.padded_rows
        if d < k.padded_key:
            head = k.head(tile // s.tiles, tile % s.tiles, T.Cast("int32", h))
            element = T.if_then_else(d < p.key, p.rotated_query(token, head, d), T.float32(0))
            k.query[d, h] = element * T.float32(p.scale)


@T.macro
def clear(k, tile, piece, warp, lane):
    s = k.s
    for h in T.unroll(k.padded_rows):
        k.score[h] = T.float32(0)
    for h in T.unroll(s.rows):
        k.row_max[h] = k.p.start_max(k.head(tile // s.tiles, tile % s.tiles, h), piece + warp < 1)
        k.row_sum[h] = k.p.start_sum(piece + warp + T.Cast("int32", lane) < 1)
        for c in T.unroll(s.value_vectors):
            for e in T.unroll(s.value_vector):
                k.acc[h, c, e] = T.float32(0)


# -- strips ------------------------------------------------------------------------------------------------------------


@T.macro
def attend_strips(k, token, tile, start, stop, warp, lane):
    """Attend to the strips from ``start`` to ``stop`` that the token sees, each warp to its share."""
    sequence = k.p.sequence(token)
    position = k.p.position(token)
    end = k.p.end(token)
    first = k.first_strip(token)
    for i in range(T.ceildiv(stop - start, k.warps)):
        own = start + i * k.warps + warp
        strip = k.strip(T.min(own, stop - 1), first)
        page = k.p.page_of(sequence, T.Cast("int64", strip * k.s.slots))
        visible = T.Select(own < stop, end, T.int32(0))
        attend_strip(k, page, tile, strip, position, visible, end, warp, lane)


@T.macro
def attend_strip(k, page, tile, strip, position, visible, end, warp, lane):
    """Online softmax over the slots of a strip.

    visible: end of the visible positions. end: end of the positions that have been written; later slots may hold NaN.
    """
    p = k.p
    g = tile // k.s.tiles
    slot = k.slot(strip)
    start = strip * k.s.slots
    for h in T.unroll(k.s.rows):
        for x in T.unroll(k.s.key_vector):
            k.products[h, x] = T.float32(0)
    if p.scaled:
        load_scales(k, page, g, slot + T.min(k.lane_slot(lane), T.Cast("int64", end - start - 1)))
    if p.inline:
        multiply_rotated_keys(k, page, g, start, slot, lane)
    else:
        multiply_keys(k, page, g, slot, lane)
    if not p.latent:
        load_values(k, page, g, T.Cast("int64", end - start - 1), slot, lane)
    softmax(k, g, tile % k.s.tiles, start + T.Cast("int32", k.lane_slot(lane)), position, visible, warp, lane)
    T.tvm_storage_sync("warp")
    if p.latent:
        add_latent_values(k, page, g, T.Cast("int64", end - start), slot, warp, lane)
    else:
        add_values(k, warp, lane)
    T.tvm_storage_sync("warp")


@T.macro
def load_scales(k, page, g, slot):
    k.scales[0] = k.p.key_scale(page, g, slot)
    k.scales[1] = k.p.value_scale(page, g, slot)


@T.macro
def multiply_keys(k, page, g, slot, lane):
    """Add to ``products[h, i]`` the products of the lane's elements of query row h and of the key in slot i."""
    p = k.p
    s = k.s
    at = slot + lane % s.slot_lanes * s.key_vector
    for chunk in T.unroll(k.padded_key // (s.key_lanes * k.key_loads)):
        for i in T.unroll(k.key_loads):
            d = k.element(chunk * k.key_loads + i, lane)
            existing = T.min(d, p.key - 1) if k.padded_key > p.key else d
            load_vector(k.keys, i, p.k_pages[p.layer, page, g, existing, at], s.key_vector)
        for i in T.unroll(k.key_loads):
            for h in T.vectorized(k.padded_rows):
                k.factors[h] = k.query[k.element(chunk * k.key_loads + i, lane), h]
            if k.widen_keys:
                widen(k.widen_keys, k.wide, k.keys, i, s.key_vector)
            for x in T.unroll(s.key_vector):
                key = k.key_at(i, x)
                for h in T.unroll(s.rows):
                    k.products[h, x] = k.products[h, x] + k.factors[h] * key


@T.macro
def multiply_rotated_keys(k, page, g, start, slot, lane):
    """Like ``multiply_keys``, for keys that are rotated when they are read."""
    at = lane % k.s.slot_lanes * k.s.key_vector
    for i in range(k.key_steps):
        d = k.element(i, lane)
        if d < k.p.key:
            for x in T.unroll(k.s.key_vector):
                key = k.p.rotated_key(page, g, d, slot + at + x, start + T.Cast("int32", at + x))
                for h in T.unroll(k.s.rows):
                    k.products[h, x] = k.products[h, x] + k.query[d, h] * key


@T.macro
def softmax(k, g, tile, j, position, visible, warp, lane):
    """Give each lane the score of its slot, at position ``j``; store the slot's weights, rescale earlier sums."""
    s = k.s
    scatter_sums(k.products, s.rows, s.key_vector, k.sent, k.other, lane, WARP // 2)
    for h in T.unroll(s.rows):
        k.score[h] = k.products[h, 0]
    reduce_lanes(k.score, s.rows, k.other, add, s.slot_lanes, WARP // s.key_vector)
    for h in T.unroll(s.rows):
        k.score[h] = k.p.masked_score(k.score_of(k.score[h]), k.head(g, tile, h), j, position, visible)
        k.new_max[h] = k.score[h]
    reduce_lanes(k.new_max, s.rows, k.other, maximum, 1, s.slot_lanes)
    reduce_lanes(k.new_max, s.rows, k.other, maximum, WARP // s.key_vector, WARP)
    is_counted = lane // s.slot_lanes % (s.key_lanes // s.key_vector) < 1  # of the lanes with the same slot, one
    for h in T.unroll(s.rows):
        k.new_max[h] = T.max(k.new_max[h], k.row_max[h])
        correction = T.exp(k.row_max[h] - k.new_max[h])
        k.score[h] = T.exp(k.score[h] - k.new_max[h])
        k.row_sum[h] = k.row_sum[h] * correction + T.Select(is_counted, k.score[h], T.float32(0))
        k.row_max[h] = k.new_max[h]
        for c in T.unroll(s.value_vectors):
            for e in T.unroll(s.value_vector):
                k.acc[h, c, e] = k.acc[h, c, e] * correction
    if is_counted:
        for h in T.vectorized(k.padded_rows):
            k.weights[warp, k.own_place(lane), h] = k.weight_of(k.score[h])


@T.macro
def load_values(k, page, g, last, slot, lane):
    """Load the values of the strip; ``last``: the last written slot; slots after it are read as this one."""
    p = k.p
    s = k.s
    for i in T.unroll(k.value_steps):
        row = slot + T.min(i * s.row_lanes + lane // s.value_lanes, last)
        for c in T.unroll(s.value_vectors):
            e = (c * s.value_lanes + lane % s.value_lanes) * s.value_vector
            existing = T.min(e, p.value - s.value_vector) if k.width > p.value else e
            at = i * s.value_vectors + c
            load_vector(k.values, at, p.v_pages[p.layer, page, g, row, existing], s.value_vector)


@T.macro
def add_values(k, warp, lane):
    """Add the weighted values of the strip."""
    s = k.s
    for i in T.unroll(k.value_steps):
        for h in T.vectorized(k.padded_rows):
            k.factors[h] = k.weights[warp, k.place(i * s.row_lanes) + k.place(lane // s.value_lanes), h]
        for c in T.unroll(s.value_vectors):
            if k.widen_values:
                widen(k.widen_values, k.wide, k.values, i * s.value_vectors + c, s.value_vector)
            for x in T.unroll(s.value_vector):
                value = k.value_at(i * s.value_vectors + c, x)
                for h in T.unroll(s.rows):
                    k.acc[h, c, x] = k.acc[h, c, x] + k.factors[h] * value


@T.macro
def add_latent_values(k, page, g, count, slot, warp, lane):
    """Add the weighted values of the strip, which are parts of keys; ``count``: the number of written slots."""
    p = k.p
    s = k.s
    at = lane % s.slot_lanes * s.key_vector
    for c in T.unroll(s.value_vectors):
        d = T.min(k.element(c, lane), p.key - 1) if k.width > p.key else k.element(c, lane)
        load_vector(k.values, 0, p.k_pages[p.layer, page, g, d, slot + at], s.key_vector)
        for x in T.unroll(s.key_vector):
            value = T.Select(at + x < count, T.Cast("float32", k.values[0, x]), T.float32(0))
            for h in T.unroll(s.rows):
                k.acc[h, c, 0] = k.acc[h, c, 0] + k.weights[warp, k.place(x) + lane % s.slot_lanes, h] * value


# -- partial results ---------------------------------------------------------------------------------------------------


@T.macro
def merge_warps(k, token, tile, piece, warp, lane):
    """Merge the warps' results and store the piece's maximum, sum and weighted values of each row."""
    p = k.p
    s = k.s
    reduce_lanes(k.row_sum, s.rows, k.other, add, 1, WARP)
    if lane < 1:
        for h in T.unroll(s.rows):
            k.totals[0, warp, h] = k.row_max[h]
            k.totals[1, warp, h] = k.row_sum[h]
    for h in T.unroll(s.rows):
        for c in T.unroll(s.value_vectors):
            for e in T.unroll(s.value_vector):
                k.sent[0] = k.acc[h, c, e]
                if p.latent:
                    reduce_lanes(k.sent, 1, k.other, add, 1, s.slot_lanes)
                else:
                    reduce_lanes(k.sent, 1, k.other, add, s.value_lanes, WARP)
                k.acc[h, c, e] = k.sent[0]
            store_part(k, warp, lane, h, c)
    T.tvm_storage_sync("shared")
    for i in range(T.ceildiv(s.rows * p.value, k.warps * WARP)):
        at = (i * k.warps + T.Cast("int64", warp)) * WARP + lane
        if at < s.rows * p.value:
            store_partial(k, token, tile, piece, at // p.value, at % p.value)
    T.tvm_storage_sync("shared")


@T.macro
def store_part(k, warp, lane, h, c):
    s = k.s
    if k.p.latent:
        if lane % s.slot_lanes < 1:
            k.parts[warp, h, k.element(c, lane)] = k.acc[h, c, 0]
    else:
        if lane < s.value_lanes:
            for i in T.unroll(T.ceildiv(s.value_vector, k.stored)):
                for e in T.vectorized(k.stored):
                    at = (c * s.value_lanes + lane) * s.value_vector + i * k.stored
                    k.parts[warp, h, k.part_place(at) + e] = k.acc[h, c, i * k.stored + e]


@T.macro
def store_partial(k, token, tile, piece, h, e):
    s = k.s
    row_max = T.decl_buffer((1,), "float32", scope="local")
    row_max[0] = k.totals[0, 0, h]
    for w in T.unroll(k.warps - 1):
        row_max[0] = T.max(row_max[0], k.totals[0, w + 1, h])
    k.total[0] = T.float32(0)
    k.total[1] = T.float32(0)
    for w in T.unroll(k.warps):
        weight = T.exp(k.totals[0, w, h] - row_max[0])
        k.total[0] = k.total[0] + k.totals[1, w, h] * weight
        k.total[1] = k.total[1] + k.parts[w, h, k.part_place(e)] * weight
    if tile % s.tiles * s.rows + h < k.p.group:
        head = k.head(tile // s.tiles, tile % s.tiles, h)
        k.partial[token, head, piece, e] = k.total[1]
        if e < 1:
            k.partial_max[token, head, piece] = row_max[0]
            k.partial_sum[token, head, piece] = k.total[0]


# -- the merge ---------------------------------------------------------------------------------------------------------


@T.macro
def merge_pieces(k, token, tile, warp, lane):
    p = k.p
    s = k.s
    count = k.count(token)
    pieces = T.ceildiv(count, k.piece_strips(count))
    for i in range(T.ceildiv(s.rows * p.value, k.warps * WARP)):
        at = (i * k.warps + T.Cast("int64", warp)) * WARP + lane
        h = at // p.value
        if at < s.rows * p.value:
            if tile % s.tiles * s.rows + h < p.group:
                merge_element(k, token, k.head(tile // s.tiles, tile % s.tiles, h), pieces, at % p.value)


@T.macro
def merge_element(k, token, head, pieces, e):
    """Merge an element of the values: ``LOADS`` pieces are loaded before the first one is used."""
    loads = k.loaded.shape[1]
    total = T.decl_buffer((3,), "float32", scope="local")  # maximum, sum, weighted value
    total[0] = T.float32(NO_MAXIMUM)
    total[1] = T.float32(0)
    total[2] = T.float32(0)
    for chunk in range(T.ceildiv(pieces, loads)):
        for i in T.unroll(loads):
            k.loaded[0, i] = k.partial_max[token, head, T.min(chunk * loads + i, pieces - 1)]
        for i in T.unroll(loads):
            total[0] = T.max(total[0], k.loaded[0, i])
    for chunk in range(T.ceildiv(pieces, loads)):
        for i in T.unroll(loads):
            piece = T.min(chunk * loads + i, pieces - 1)
            k.loaded[0, i] = T.exp(k.partial_max[token, head, piece] - total[0])
            k.loaded[1, i] = k.partial_sum[token, head, piece]
            k.loaded[2, i] = k.partial[token, head, piece, e]
        for i in T.unroll(loads):
            if chunk * loads + i < pieces:
                total[1] = total[1] + k.loaded[0, i] * k.loaded[1, i]
                total[2] = total[2] + k.loaded[0, i] * k.loaded[2, i]
    scale = T.float32(1) / T.Select(total[1] > T.float32(0), total[1], T.float32(1))
    k.p.out[token, head, e] = T.Cast(k.p.out.dtype, total[2] * scale)
