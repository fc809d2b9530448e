"""TVMScript macros that store results by rows; ``k.by_rows`` is ``result_rows.ResultRows``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from ..machine import WARP


@T.macro
def store_rows(k, row_block, column_block, thread, acc):
    """Store results, eight adjacent columns at a time."""
    for part in T.unroll(k.by_rows.rounds):
        exchange(k, thread, part, acc)
        T.tvm_storage_sync("warp")
        for unit in T.unroll(k.by_rows.units):
            row = k.by_rows.result_row(row_block, thread, unit)
            column = k.by_rows.result_column(column_block, thread, part)
            if row < k.rows:
                if column < k.matmul.results:
                    store_chunk(k, thread, unit, row, column)
        T.tvm_storage_sync("warp")


@T.macro
def exchange(k, thread, part, acc):
    """Store the sums of a round to shared memory."""
    for number in T.unroll(k.combined):
        for fragment in T.unroll(k.by_rows.chunks):
            place = k.sum_place(part * k.by_rows.chunks + fragment, number)
            for half in T.unroll(2):
                row = k.by_rows.fragment_row(thread, half)
                first = k.by_rows.fragment_place(thread, fragment, half)
                for e in T.vectorized(2):
                    k.by_rows.sums[thread // WARP, number, row, first + e] = acc[0, place, half * 2 + e]


@T.macro
def store_chunk(k, thread, unit, row, column):
    sums = T.decl_buffer((k.combined, 8), "float32", scope="local")
    held = T.decl_buffer((8,), k.result.out.dtype, scope="local")
    inside = k.by_rows.row(thread, unit)
    first = k.by_rows.place(inside, k.by_rows.chunk(thread))
    for number in T.unroll(k.combined):
        for e in T.vectorized(8):
            sums[number, e] = k.by_rows.sums[thread // WARP, number, inside, first + e]
    for e in T.unroll(8):
        held[e] = k.result.value(row, column + e, k.sums_of(sums, e))
    for e in T.vectorized(8):
        k.result.out[k.result.place(row, column + e)] = held[e]
