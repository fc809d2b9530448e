"""TVMScript macros of a matmul on tensor cores; ``k`` is ``kernel.Kernel``.

Tiles of the operands are in shared memory, [stages, rows or columns, positions], with their chunks of 16 bytes permuted
(``k.place``) so that no two of the 8 rows that ldmatrix reads together are in one bank. held_x, held_w: the chunks that
a thread computes, in registers; words, scales: the packed weights that they are made of.
"""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from .box_loops import prepare_stages, start_boxes
from .fma_loops import store_result
from .lane_weights_loops import fill_book
from .result_loops import store_rows


@T.macro
def multiply_tile(k, row_block, column_block, thread):
    """Compute one thread's part of a tile, with its accumulator fragments in registers."""
    acc = T.decl_buffer((k.t.row_tiles, k.t.column_tiles, 4), "float32", scope="local")
    clear(k, acc)
    words = T.decl_buffer((k.t.stages, k.w_units, k.taken), k.code_dtype, scope="local")
    scales = T.decl_buffer((k.t.stages, k.w_units), k.dtype, scope="local")
    if k.copies_boxes:
        prepare_stages(k, thread, False)
    for step in T.unroll(k.t.stages - 1):
        start_copies(k, row_block, column_block, thread, step, step)
    if k.unpacks:
        for step in T.unroll(k.fetched):
            fetch(k, column_block, thread, step, step, words, scales)
    if k.computes:
        for step in T.unroll(k.t.stages - 1):
            compute(k, row_block, column_block, thread, T.min(step, k.steps - 1), step, acc, 0, False)
    if k.unpacks:
        unpack(k, thread, 0, words, scales)
    for iteration in range(k.iterations):
        for part in T.unroll(k.unrolled):
            step = iteration * k.unrolled + part
            if k.steps % k.unrolled == 0:
                advance(k, row_block, column_block, thread, step, part, acc, words, scales)
            else:
                if step < k.steps:
                    advance(k, row_block, column_block, thread, step, part, acc, words, scales)
    store(k, row_block, column_block, thread, acc)


@T.macro
def clear(k, acc):
    for i in T.unroll(k.t.row_tiles):
        for j in T.unroll(k.t.column_tiles):
            for e in T.vectorized(4):
                acc[i, j, e] = T.float32(0)


@T.macro
def advance(k, row_block, column_block, thread, step, part, acc, words, scales):
    """Multiply one stage; meanwhile, load the tile that is needed ``stages - 1`` steps later.

    Without conditions around them, loads to registers are issued before the multiplication and awaited after it: tiles
    beyond the last one are loaded too, into stages that are not read again.
    """
    await_copies(k, step, k.stage(step, part, 0))
    if k.warpgroups:
        k.instruction("fence.proxy_async")
    T.tvm_storage_sync("shared")
    ahead = step + (k.t.stages - 1)
    start_copies(k, row_block, column_block, thread, ahead, k.stage(step, part, k.t.stages - 1))
    if k.unpacks:
        fetch(k, column_block, thread, step + k.fetched, k.stage(step, part, k.fetched), words, scales)
    if k.computes:
        last = T.min(ahead, k.steps - 1)
        stage = k.stage(step, part, k.t.stages - 1)
        compute(k, row_block, column_block, thread, last, stage, acc, k.stage(step, part, 0), True)
    else:
        multiply(k, thread, k.stage(step, part, 0), acc)
    if k.unpacks:
        unpack(k, thread, k.stage(step, part, 1), words, scales)
    if k.warpgroups:
        k.wait_for_mma(acc, 0)


@T.macro
def await_copies(k, step, stage):
    """Wait for the copies of a step: all but the thread's latest groups, or the bytes that the stage expects."""
    if k.copies_boxes:
        k.boxes.wait(stage, step)
    else:
        k.wait(k.t.stages - 2)


@T.macro
def start_copies(k, row_block, column_block, thread, step, stage):
    """Start the copies of a step, if there is one."""
    if k.copies_boxes:
        if thread == 0:
            if step < k.steps:
                start_boxes(k, row_block, column_block, step, stage)
    else:
        if step < k.steps:
            if not k.x_computed:
                for u in T.unroll(k.x_units):
                    k.copy_activation(row_block, thread, step, stage, u)
            if k.w_copied:
                for u in T.unroll(k.w_units):
                    k.copy_weight(column_block, thread, step, stage, u)
        k.commit()


@T.macro
def fetch(k, column_block, thread, step, stage, words, scales):
    """Load packed weights, ``k.fetched - 1`` steps before they are unpacked."""
    for u in T.unroll(k.w_units):
        for i in T.vectorized(k.taken):
            words[stage, u, i] = k.codes(column_block, thread, step, u, i)
        if k.packed.unpacking.scaled:
            scales[stage, u] = k.scale(column_block, thread, step, u)


@T.macro
def unpack(k, thread, stage, words, scales):
    """Unpack a stage of packed weights to shared memory."""
    held = T.decl_buffer((k.w_units, 8), k.dtype, scope="local")
    book = T.decl_buffer((16,), "int8", scope="local")
    fill_book(k.packed, book)
    for u in T.unroll(k.w_units):
        for part in T.unroll(8 // k.packed.unpacking.codes):
            k.unpack(held, words, scales, book, stage, u, part)
    for u in T.unroll(k.w_units):
        for e in T.vectorized(8):
            k.ws[stage, k.w_row(thread, u), k.w_place(thread, u) + e] = held[u, e]


@T.macro
def compute(k, row_block, column_block, thread, step, stage, acc, ready, multiplies):
    """Compute the tile of ``step`` in registers, for ``stage``; meanwhile, multiply ``ready`` if ``multiplies``."""
    held_x = T.decl_buffer((k.x_units, 8), k.dtype, scope="local")
    held_w = T.decl_buffer((k.w_units, 8), k.dtype, scope="local")
    if k.x_computed:
        for u in T.unroll(k.x_units):
            for e in T.unroll(8):
                held_x[u, e] = k.activation(row_block, thread, step, u, e)
    if k.w_computed:
        for u in T.unroll(k.w_units):
            for e in T.unroll(8):
                held_w[u, e] = k.weight(column_block, thread, step, u, e)
    if multiplies:
        multiply(k, thread, ready, acc)
    put(k, thread, stage, held_x, held_w)


@T.macro
def put(k, thread, stage, held_x, held_w):
    """Store the chunks that the thread has computed."""
    if k.x_computed:
        for u in T.unroll(k.x_units):
            for e in T.vectorized(8):
                k.xs[stage, k.x_row(thread, u), k.x_place(thread) + e] = held_x[u, e]
    if k.w_computed:
        for u in T.unroll(k.w_units):
            for e in T.vectorized(8):
                k.ws[stage, k.w_row(thread, u), k.w_place(thread, u) + e] = held_w[u, e]


@T.macro
def multiply(k, thread, stage, acc):
    """Multiply one stage, 16 positions at a time; wgmma is only started, and awaited later."""
    if k.warpgroups:
        start_mma(k, thread, stage, acc)
    else:
        multiply_by_warps(k, thread, stage, acc)


@T.macro
def start_mma(k, thread, stage, acc):
    """Start the wgmma instructions of a stage and commit them as a group."""
    k.instruction("wgmma.fence")
    k.wgmma(acc, thread, stage, 0)
    k.wgmma(acc, thread, stage, 1)
    k.wgmma(acc, thread, stage, 2)
    k.wgmma(acc, thread, stage, 3)
    k.instruction("wgmma.commit")


@T.macro
def multiply_by_warps(k, thread, stage, acc):
    for part in T.unroll(k.t.depth // 16):
        a = T.decl_buffer((k.t.row_tiles, 8), k.dtype, scope="local")
        b = T.decl_buffer((k.t.column_tiles, 4), k.dtype, scope="local")
        for i in T.unroll(k.t.row_tiles):
            k.load_left(a, i, thread, stage, part)
        for j in T.unroll(k.t.column_tiles // 2):
            k.load_right(b, j, thread, stage, part)
        for i in T.unroll(k.t.row_tiles):
            for j in T.unroll(k.t.column_tiles):
                k.mma(acc, a, b, i, j)


@T.macro
def store(k, row_block, column_block, thread, acc):
    if k.stores_rows:
        store_rows(k, row_block, column_block, thread, acc)
    else:
        store_fragments(k, row_block, column_block, thread, acc)


@T.macro
def store_fragments(k, row_block, column_block, thread, acc):
    """Store results, two adjacent columns at a time."""
    for i in T.unroll(k.t.row_tiles):
        for half in T.unroll(2):
            row = k.result_row(row_block, thread, i, half)
            if row < k.rows:
                for j in T.unroll(k.result_tiles):
                    column = k.result_column(column_block, thread, j)
                    if k.pairs:
                        if column < k.matmul.results:
                            for e in T.vectorized(2):
                                sums = k.combined_sums(acc, i, j, half * 2 + e)
                                store_result(k.result, row, column + e, sums)
                    else:
                        for e in T.unroll(2):
                            if column + e < k.matmul.results:
                                sums = k.combined_sums(acc, i, j, half * 2 + e)
                                store_result(k.result, row, column + e, sums)
