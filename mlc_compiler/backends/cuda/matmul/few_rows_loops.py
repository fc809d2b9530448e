"""TVMScript macros of a matmul with few rows; ``k`` is ``few_rows.FewRows``, ``s`` its ``staged.Staged``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from ..operators.arrivals import arrive
from .lane_weights_loops import load_weights


@T.macro
def multiply_rows(k, block, part, warp, lane):
    """Sum over the warp's share of a part of the depth, then over warps and parts; store the results."""
    if k.staged:
        stage(k.staged, part, warp, lane)
    acc = T.decl_buffer((k.d.tiles, 4), "float32", scope="local")
    for tile in T.unroll(k.d.tiles):
        for e in T.vectorized(4):
            acc[tile, e] = T.float32(0)
    for outer in range(k.d.steps // k.together):
        for inner in T.unroll(k.together):
            span = k.span_in_part(warp, outer * k.together + inner)
            if k.partial:
                if k.first_span(part) + span < k.spans:
                    multiply_step(k, block, part, span, lane, acc)
            else:
                multiply_step(k, block, part, span, lane, acc)
    for tile in T.unroll(k.d.tiles):
        for i in T.unroll(4):
            if k.sum_row(lane, i) < k.row_count:
                k.sums[warp, k.sum_row(lane, i), k.sum_column(lane, tile, i)] = acc[tile, i]
    T.tvm_storage_sync("shared")
    if k.d.parts > 1:
        merge_parts(k, block, part, warp * 32 + lane)
    else:
        for number in T.unroll(k.results):
            place = k.place(number, warp * 32 + lane)
            if k.is_result(block, place):
                store_result(k, block, place)


@T.macro
def merge_parts(k, block, part, thread):
    """Store the sums of a part; the last block to do so adds those of all parts, in order."""
    for number in T.unroll(k.results):
        place = k.place(number, thread)
        if k.is_result(block, place):
            store_part(k, block, part, place)
    arrive(k.arrived, k.arrivals[block], T.int32(k.d.parts), thread < 1)
    if k.arrived[0] == T.uint32(k.d.parts - 1):
        for number in T.unroll(k.results):
            place = k.place(number, thread)
            if k.is_result(block, place):
                store_merged(k, block, place)


@T.macro
def load_staged(k, lane, span, held):
    for number in T.unroll(k.unit // 8):
        for e in T.vectorized(8):
            held[number * 8 + e] = k.staged.load(k.row(lane), span, lane, number, e)


@T.macro
def load_activations(k, lane, first, held, inside):
    for number in T.unroll(k.unit // 8):
        for e in T.vectorized(8):
            held[number * 8 + e] = k.activation(lane, first + number * 8, e, inside)


@T.macro
def multiply_step(k, block, part, span, lane, acc):
    """Multiply one span. Operands: [fragments, 2 pairs of positions]; the weights' for two columns that are 8 apart."""
    first = k.position(k.first_span(part) + span, lane)
    b = T.decl_buffer((k.unit,), k.dtype, scope="local")
    if k.stages_in_order:
        load_staged(k, lane, span, b)
    else:
        held = T.decl_buffer((k.unit,), k.dtype, scope="local")
        if k.staged:
            load_staged(k, lane, span, held)
        elif k.weights.exact:
            load_activations(k, lane, first, held, True)
        else:
            if k.is_whole(k.first_span(part) + span):
                load_activations(k, lane, first, held, True)
            else:
                load_activations(k, lane, first, held, False)
        for place in T.unroll(k.unit):
            b[place] = held[k.weights.order(place)]
    for tile in T.unroll(k.d.tiles):
        a = T.decl_buffer((k.fragments, 2, 2, 2), k.dtype, scope="local")
        for half in T.unroll(2):
            w = T.decl_buffer((k.unit,), k.dtype, scope="local")
            load = k.weights.load(k.first_span(part) + span, lane)
            load_weights(k.weights, k.column(block, lane, tile, half), load, w)
            for f in T.unroll(k.fragments):
                for pair in T.unroll(2):
                    for e in T.vectorized(2):
                        a[f, pair, half, e] = w[f * 4 + pair * 2 + e]
        for f in T.unroll(k.fragments):
            k.mma(acc[tile, 0], a[f, 0, 0, 0], b[f * 4])


@T.macro
def add_warps(k, place, totals):
    """``totals`` = the sums that a result depends on, added over the warps of the block."""
    for i in T.unroll(k.combined):
        totals[i] = T.float32(0)
        for warp in T.unroll(k.d.warps):
            totals[i] = totals[i] + k.warp_sum(warp, place, i)


@T.macro
def store_result(k, block, place):
    totals = T.decl_buffer((k.combined,), "float32", scope="local")
    add_warps(k, place, totals)
    row = k.result_row(place)
    column = k.result_column(block, place)
    k.result.out[k.result.place(row, column)] = k.result.value(row, column, k.combined_sums(totals))


@T.macro
def store_part(k, block, part, place):
    totals = T.decl_buffer((k.combined,), "float32", scope="local")
    add_warps(k, place, totals)
    for i in T.unroll(k.combined):
        k.part_sums[part, i, k.result_row(place), k.result_column(block, place)] = totals[i]


@T.macro
def store_merged(k, block, place):
    totals = T.decl_buffer((k.combined,), "float32", scope="local")
    row = k.result_row(place)
    column = k.result_column(block, place)
    for i in T.unroll(k.combined):
        totals[i] = T.float32(0)
        for part in T.unroll(k.d.parts):
            totals[i] = totals[i] + k.part_sums[part, i, row, column]
    k.result.out[k.result.place(row, column)] = k.result.value(row, column, k.combined_sums(totals))


@T.macro
def stage(s, part, warp, lane):
    """Compute the statistics of the rows in registers of all threads, then stage a part's activations."""
    known = T.decl_buffer((s.count, s.rows), "float32", scope="local")
    for row in T.unroll(s.rows):
        reduce_row(s, s.first, row, warp, lane, known)
        if s.count > 1:
            reduce_row(s, s.second, row, warp, lane, known)
        for turn in T.unroll(s.part_chunks.rounds):
            place = s.part_chunks.number(warp, lane, turn)
            if s.part_chunks.exact:
                stage_chunk(s, known, row, s.chunk_at(part, place), place * 8)
            else:
                if place < s.part_chunks.count:
                    stage_chunk(s, known, row, s.chunk_at(part, place), place * 8)
    T.tvm_storage_sync("shared")


@T.macro
def stage_chunk(s, known, row, chunk, place):
    computed = T.decl_buffer((8,), s.x.dtype, scope="local")
    ordered = T.decl_buffer((8,), s.x.dtype, scope="local")
    for e in T.vectorized(8):
        computed[e] = s.activation(known, row, chunk, e)
    for e in T.unroll(8):
        ordered[e] = computed[s.order(e)]
    for e in T.vectorized(8):
        s.x[row, place + e] = ordered[e]


@T.macro
def reduce_row(s, which, row, warp, lane, known):
    own = T.decl_buffer((1,), "float32", scope="local")
    other = T.decl_buffer((1,), "float32", scope="local")
    own[0] = which.start
    for turn in T.unroll(s.row_chunks.rounds):
        chunk = s.row_chunks.number(warp, lane, turn)
        if s.row_chunks.exact:
            reduce_chunk(s, which, row, chunk, own, known)
        else:
            if chunk < s.row_chunks.count:
                reduce_chunk(s, which, row, chunk, own, known)
    for j in T.unroll(5):
        s.shuffle(other[0], own[0], T.shift_right(16, j))
        own[0] = which.combine(own[0], other[0])
    if lane == 0:
        s.parts[which.number, row, warp] = own[0]
    T.tvm_storage_sync("shared")
    known[which.number, row] = s.parts[which.number, row, 0]
    for w in T.unroll(s.warps - 1):
        known[which.number, row] = which.combine(known[which.number, row], s.parts[which.number, row, w + 1])


@T.macro
def reduce_chunk(s, which, row, chunk, own, known):
    for e in T.unroll(8):
        own[0] = s.with_term(which, own[0], known, row, chunk, e)
