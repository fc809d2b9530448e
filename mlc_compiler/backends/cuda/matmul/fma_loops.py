"""TVMScript macros of a float32 matmul; ``k`` is ``fma.FmaKernel``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def multiply_tile(k, row_block, column_block, thread):
    """Compute one thread's part of a tile. While a stage is multiplied, the next one is loaded to registers."""
    acc = T.decl_buffer((k.side, k.quads, 4), "float32", scope="local")
    held_x = T.decl_buffer((k.units,), "float32", scope="local")
    held_w = T.decl_buffer((k.units,), "float32", scope="local")
    for i in T.unroll(k.side):
        for q in T.unroll(k.quads):
            for e in T.vectorized(4):
                acc[i, q, e] = T.float32(0)
    load(k, row_block, column_block, thread, T.int64(0), held_x, held_w)
    put(k, thread, T.int64(0), held_x, held_w)
    for step in range(k.steps):
        T.tvm_storage_sync("shared")
        load(k, row_block, column_block, thread, T.min(step + 1, k.steps - 1), held_x, held_w)
        multiply(k, thread, step % 2, acc)
        put(k, thread, (step + 1) % 2, held_x, held_w)
    store(k, row_block, column_block, thread, acc)


@T.macro
def load(k, row_block, column_block, thread, step, held_x, held_w):
    for u in T.unroll(k.units):
        held_x[u] = k.activation(row_block, thread, step, u)
    for u in T.unroll(k.units):
        held_w[u] = k.weight(column_block, thread, step, u)


@T.macro
def put(k, thread, stage, held_x, held_w):
    for u in T.unroll(k.units):
        x_place = k.x_place(thread, u)
        w_place = k.w_place(thread, u)
        k.xs[stage, x_place[1], x_place[0]] = held_x[u]
        k.ws[stage, w_place[1], w_place[0]] = held_w[u]


@T.macro
def multiply(k, thread, stage, acc):
    for p in T.unroll(k.depth):
        a = T.decl_buffer((k.quads, 4), "float32", scope="local")
        b = T.decl_buffer((k.quads, 4), "float32", scope="local")
        for q in T.unroll(k.quads):
            for e in T.vectorized(4):
                a[q, e] = k.xs[stage, p, k.first_row(thread, q) + e]
            for e in T.vectorized(4):
                b[q, e] = k.ws[stage, p, k.first_column(thread, q) + e]
        for i in T.unroll(k.side):
            for q in T.unroll(k.quads):
                for e in T.unroll(4):
                    acc[i, q, e] = T.fma(a[i // 4, i % 4], b[q, e], acc[i, q, e])


@T.macro
def store(k, row_block, column_block, thread, acc):
    for i in T.unroll(k.side):
        row = row_block * k.tile + k.first_row(thread, i // 4) + i % 4
        if row < k.rows:
            for q in T.unroll(k.quads):
                column = column_block * k.tile + k.first_column(thread, q)
                if k.columns % 4 == 0:
                    if column < k.columns:
                        for e in T.vectorized(4):
                            store_result(k.result, row, column + e, [acc[i, q, e]])
                else:
                    for e in T.unroll(4):
                        if column + e < k.columns:
                            store_result(k.result, row, column + e, [acc[i, q, e]])


@T.macro
def store_result(result, row, column, sums):
    result.out[result.place(row, column)] = result.value(row, column, sums)
