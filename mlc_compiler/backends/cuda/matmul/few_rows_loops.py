"""TVMScript macros of a product with few rows; ``few_rows.py`` has the names of ``k``, its ``FewRows``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def multiply_rows(k, block, warp, lane):
    """The sums of one lane over its warp's part of the depth, then over the warps."""
    if k.staged:
        stage(k.staged, warp, lane)
    acc = T.decl_buffer((k.tiles, 4), "float32", scope="local")
    for tile in T.unroll(k.tiles):
        for e in T.vectorized(4):
            acc[tile, e] = T.float32(0)
    for outer in range(k.steps // k.together):
        for inner in T.unroll(k.together):
            if k.partial:
                if k.is_inside(warp, outer * k.together + inner):
                    multiply_step(k, block, warp, lane, outer * k.together + inner, acc)
            else:
                multiply_step(k, block, warp, lane, outer * k.together + inner, acc)
    for tile in T.unroll(k.tiles):
        for half in T.unroll(2):
            for e in T.vectorized(2):
                k.sums[warp, k.sum_place(lane, tile, half) + e] = acc[tile, half * 2 + e]
    T.tvm_storage_sync("shared")
    for number in T.unroll(k.results):
        place = T.Cast("int32", number) * k.threads + warp * 32 + lane
        if k.is_result(block, place):
            store_result(k, block, place)


@T.macro
def multiply_step(k, block, warp, lane, step, acc):
    """Operands are [fragments, 2 pairs of positions]; of the weights for two columns that are 8 apart."""
    first = k.position(warp, lane, step)
    b = T.decl_buffer((k.unit,), k.dtype, scope="local")
    if k.staged:
        for part in T.unroll(k.unit // 8):
            for e in T.vectorized(8):
                b[part * 8 + e] = k.staged.load(k.row(lane), k.span_number(warp, step), lane, part, e)
    else:
        held = T.decl_buffer((k.unit,), k.dtype, scope="local")
        for part in T.unroll(k.unit // 8):
            for e in T.vectorized(8):
                held[part * 8 + e] = k.activation(lane, first, part * 8 + e)
        for place in T.unroll(k.unit):
            b[place] = held[k.order(place)]
    for tile in T.unroll(k.tiles):
        a = T.decl_buffer((k.fragments, 2, 2, 2), k.dtype, scope="local")
        for half in T.unroll(2):
            column = k.column(block, lane, tile, half)
            w = T.decl_buffer((k.unit,), k.dtype, scope="local")
            if k.packed:
                load_packed(k, column, first, w)
            else:
                for part in T.unroll(k.unit // 8):
                    for e in T.vectorized(8):
                        w[part * 8 + e] = k.weight(column, first, part * 8 + e)
            for f in T.unroll(k.fragments):
                for pair in T.unroll(2):
                    for e in T.unroll(2):
                        a[f, pair, half, e] = w[f * 4 + pair * 2 + e]
        for f in T.unroll(k.fragments):
            k.mma(acc[tile, 0], a[f, 0, 0, 0], b[f * 4])


@T.macro
def load_packed(k, column, first, w):
    """A lane's words, dequantized in the order of ``k.order``."""
    words = T.decl_buffer((k.unit // 8,), "uint32", scope="local")
    scale = T.decl_buffer((k.unit // 8,), k.dtype, scope="local")
    for number in T.vectorized(k.unit // 8):
        words[number] = k.word(column, first, number)
    for number in T.unroll(k.unit // 8):
        scale[number] = k.scale(column, first, number)
        k.dequantize(w[number * 8], words[number], scale[number])


@T.macro
def store_result(k, block, place):
    totals = T.decl_buffer((k.combined,), "float32", scope="local")
    for i in T.unroll(k.combined):
        totals[i] = T.float32(0)
        for number in T.unroll(k.warps):
            totals[i] = totals[i] + k.sums[number, k.combined_place(place, i)]
    row = k.result_row(place)
    column = k.result_column(block, place)
    k.result.out[k.result.place(row, column)] = k.result.value(row, column, k.combined_sums(totals))


@T.macro
def stage(s, warp, lane):
    """The statistics of the rows, each in registers of all threads, then the activations in shared memory."""
    known = T.decl_buffer((s.count, s.rows), "float32", scope="local")
    for row in T.unroll(s.rows):
        reduce_row(s, s.first, row, warp, lane, known)
        if s.count > 1:
            reduce_row(s, s.second, row, warp, lane, known)
        for part in T.unroll(s.rounds):
            place = s.place(warp, lane, part)
            if s.exact_rounds:
                stage_chunk(s, known, row, place)
            else:
                if place < s.chunks:
                    stage_chunk(s, known, row, place)
    T.tvm_storage_sync("shared")


@T.macro
def stage_chunk(s, known, row, place):
    computed = T.decl_buffer((8,), s.x.dtype, scope="local")
    ordered = T.decl_buffer((8,), s.x.dtype, scope="local")
    for e in T.vectorized(8):
        computed[e] = s.activation(known, row, s.chunk(place), e)
    for e in T.unroll(8):
        ordered[e] = computed[s.order(e)]
    for e in T.vectorized(8):
        s.x[row, place * 8 + e] = ordered[e]


@T.macro
def reduce_row(s, which, row, warp, lane, known):
    own = T.decl_buffer((1,), "float32", scope="local")
    other = T.decl_buffer((1,), "float32", scope="local")
    own[0] = which.start
    for part in T.unroll(s.rounds):
        place = s.place(warp, lane, part)
        if s.exact_rounds:
            reduce_chunk(s, which, row, place, own, known)
        else:
            if place < s.chunks:
                reduce_chunk(s, which, row, place, own, known)
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
