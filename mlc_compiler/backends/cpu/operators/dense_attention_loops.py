"""TVMScript macros of attention over whole tensors; ``k`` is ``dense_attention._Kernel``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from .attention_loops import add_values, score_keys, softmax


@T.macro
def attend(k, item):
    lead = item // k.count
    first = item % k.count * k.step
    count = T.min(k.step, k.n - first)
    for row in range(T.ceildiv(count, k.row_tile) * k.row_tile):
        stage_query(k, lead, first, row, count)
    for b in range(T.ceildiv(k.length, k.block)):
        attend_block(k, lead, first, count, b * k.block)
    for row in range(count):
        store_result(k, lead, first, row)


@T.macro
def stage_query(k, lead, first, row, count):
    if row < count:
        for d in T.vectorized(k.key):
            k.query[row, d] = T.Cast("float32", k.q[k.place(k.q, lead, first + row, d)]) * T.float32(k.scale)
    else:
        for d in T.vectorized(k.key):
            k.query[row, d] = T.float32(0)
    for e in T.vectorized(k.padded_value):
        k.acc[row, e] = T.float32(0)
    k.row_max[row] = T.float32(k.lowest)
    k.row_sum[row] = T.float32(0)


@T.macro
def attend_block(k, lead, first, count, j):
    size = T.min(k.block, k.length - j)
    stage_keys(k, lead, j, size)
    for i in range(size):
        for e in T.vectorized(k.value):
            k.values[i, e] = T.Cast("float32", k.value_rows[k.place(k.value_rows, lead, j + i, e)])
    for tile in range(T.ceildiv(count, k.row_tile)):
        row = tile * k.row_tile
        if k.has_mask:
            stage_bias(k, lead, first + row, count - row, j, size)
        score_keys(k, lead, row, j, size)
        softmax(k, row, size)
        add_values(k, lead, row, j, size)


@T.macro
def stage_keys(k, lead, j, size):
    if size == k.block:
        for d in range(k.key):
            for i in T.vectorized(k.block):
                k.keys[d, i] = T.Cast("float32", k.key_columns[k.place(k.key_columns, lead, d, j + i)])
    else:
        for d in range(k.key):
            for c in T.unroll(k.block // k.lanes):
                for lane in T.vectorized(k.lanes):
                    i = c * k.lanes + lane
                    if i < size:
                        k.keys[d, i] = T.Cast("float32", k.key_columns[k.place(k.key_columns, lead, d, j + i)])


@T.macro
def stage_bias(k, lead, row, rows, j, size):
    """Stage the mask of a row tile as float32; minus infinity after the last key."""
    for r in range(k.row_tile):
        for s in T.vectorized(k.block):
            k.bias[r, s] = T.float32(k.hidden)
        if r < rows:
            for c in T.unroll(k.block // k.lanes):
                for lane in T.vectorized(k.lanes):
                    i = c * k.lanes + lane
                    if i < size:
                        k.bias[r, i] = k.mask_at(lead, row + r, j + i)


@T.macro
def store_result(k, lead, first, row):
    total = k.row_sum[row]
    is_empty = total <= T.float32(0) if k.zero_rows else k.length < 1
    scale = T.float32(1) / T.Select(is_empty, T.float32(1), total)
    for e in T.vectorized(k.value):
        k.out[k.place(k.out, lead, first + row, e)] = T.Cast(k.out.dtype, k.acc[row, e] * scale)
