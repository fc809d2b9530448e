"""TVMScript macros of tiles in float32; ``k`` is ``fma_tiles.FmaTiles``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....script import T
from ..machine import WARP
from .tile_loops import attend_runs
from .warps import add, reduce_lanes


@T.macro
def attend_tile(k, tile, g, thread):
    stage_queries(k, tile, g, thread)
    for h in T.unroll(k.warp_rows):
        head = k.head(tile * k.rows + thread // WARP * k.warp_rows + h, g)
        k.row_max[h] = k.p.start_max(head)
        k.row_sum[h] = k.p.start_sum(thread % WARP < 1)
        for c in T.unroll(k.value_steps):
            k.acc[h, c] = T.float32(0)
    attend_runs(k, tile, g, thread, attend_keys)
    store_tile(k, tile, g, thread // WARP, thread % WARP)


@T.macro
def stage_queries(k, tile, g, thread):
    for i in range(T.ceildiv(k.p.key * k.rows, k.threads)):
        at = i * k.threads + thread
        if at < k.p.key * k.rows:
            row = tile * k.rows + at // k.p.key
            element = k.p.rotated_query(k.token(row), k.head(row, g), at % k.p.key)
            k.query[at % k.p.key, at // k.p.key] = element * T.float32(k.p.scale)


@T.macro
def attend_keys(k, tile, g, run, thread):
    for i in range(k.count()):
        attend_block(k, tile, g, run, k.start(i), thread)


@T.macro
def attend_block(k, tile, g, run, start, thread):
    """Online softmax over the block of keys from position ``start`` on."""
    warp = thread // WARP
    lane = thread % WARP
    stage_block(k, g, run, start, thread)
    for h in T.unroll(k.warp_rows):
        k.score[h] = T.float32(0)
    for d in range(k.p.key):
        for h in T.vectorized(k.warp_rows):
            k.factors[h] = k.query[d, warp * k.warp_rows + h]
        for h in T.unroll(k.warp_rows):
            k.score[h] = k.score[h] + k.factors[h] * k.keys[d, lane]
    for h in T.unroll(k.warp_rows):
        row = warp * k.warp_rows + h
        head = k.head(tile * k.rows + row, g)
        k.score[h] = k.score_of(k.score[h], row, run, head, T.Cast("int32", start + lane))
        k.new_max[h] = k.score[h]
    reduce_lanes(k.new_max, k.warp_rows, k.other, maximum, 1, WARP)
    for h in T.unroll(k.warp_rows):
        k.new_max[h] = T.max(k.new_max[h], k.row_max[h])
        correction = T.exp(k.row_max[h] - k.new_max[h])
        k.score[h] = T.exp(k.score[h] - k.new_max[h])
        k.row_sum[h] = k.row_sum[h] * correction + k.score[h]
        k.row_max[h] = k.new_max[h]
        k.weights[warp, lane, h] = k.score[h]
        for c in T.unroll(k.value_steps):
            k.acc[h, c] = k.acc[h, c] * correction
    T.tvm_storage_sync("warp")
    add_values(k, warp, lane)
    T.tvm_storage_sync("shared")


@T.macro
def stage_block(k, g, run, start, thread):
    """Copy the block's keys and values; positions that are not visible are replaced by written ones."""
    p = k.p
    if thread < WARP:
        position = k.readable(T.Cast("int32", start + thread))
        k.places[thread] = position
        k.pages[thread] = p.page_of(T.Cast("int64", k.sequences[run]), T.Cast("int64", position))
    T.tvm_storage_sync("shared")
    for i in range(T.ceildiv(p.key * WARP, k.threads)):
        d = i * k.warps + thread // WARP
        if d < p.key:
            j = k.places[thread % WARP]
            k.keys[d, thread % WARP] = k.stored_key(k.pages[thread % WARP], g, d, j)
    if not p.latent:
        for i in range(T.ceildiv(p.value * WARP, k.threads)):
            at = i * k.threads + thread
            slot = at // p.value
            if slot < WARP:
                k.values[slot, at % p.value] = k.stored_value(k.pages[slot], g, k.places[slot], at % p.value)
    T.tvm_storage_sync("shared")


@T.macro
def add_values(k, warp, lane):
    for i in range(WARP):
        for h in T.vectorized(k.warp_rows):
            k.factors[h] = k.weights[warp, i, h]
        for c in T.unroll(k.value_steps):
            e = T.min(c * WARP + lane, k.p.value - 1) if k.p.value % WARP else c * WARP + lane
            value = k.keys[e, i] if k.p.latent else k.values[i, e]
            for h in T.unroll(k.warp_rows):
                k.acc[h, c] = k.acc[h, c] + k.factors[h] * value


@T.macro
def store_tile(k, tile, g, warp, lane):
    reduce_lanes(k.row_sum, k.warp_rows, k.other, add, 1, WARP)
    for h in T.unroll(k.warp_rows):
        row = tile * k.rows + warp * k.warp_rows + h
        scale = T.float32(1) / T.Select(k.row_sum[h] > T.float32(0), k.row_sum[h], T.float32(1))
        if row < k.all_rows:
            for c in T.unroll(k.value_steps):
                if c * WARP + lane < k.p.value:
                    result = T.Cast(k.p.out.dtype, k.acc[h, c] * scale)
                    k.p.out[k.token(row), k.head(row, g), c * WARP + lane] = result
