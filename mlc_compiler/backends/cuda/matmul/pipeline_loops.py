"""TVMScript macros of a matmul by TMA and wgmma; ``k`` is ``pipeline.Pipeline``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from ..machine import WARP
from .box_loops import prepare_stages, start_boxes
from .loops import clear, start_mma, store


@T.macro
def multiply_tile(k, row_block, column_block, thread):
    """Compute one thread's part of a tile, with its accumulator fragments in registers."""
    acc = T.decl_buffer((k.t.row_tiles, k.t.column_tiles, 4), "float32", scope="local")
    clear(k, acc)
    prepare_stages(k, thread, True)
    if thread == 0:
        for step in T.unroll(k.filled):
            start_boxes(k, row_block, column_block, step, step)
    k.boxes.wait(T.int64(0), T.int64(0))
    start_mma(k, thread, T.int64(0), acc)
    for before in range(k.steps - 1):
        k.boxes.wait(k.stage(before, 0, 1), before + 1)
        start_mma(k, thread, k.stage(before, 0, 1), acc)
        k.wait_for_mma(acc, 1)
        refill(k, row_block, column_block, thread, before)
    k.wait_for_mma(acc, 0)
    store(k, row_block, column_block, thread, acc)


@T.macro
def refill(k, row_block, column_block, thread, before):
    """Release the stage of step ``before``; once all warps have, start to load the next step into it."""
    stage = k.stage(before, 0, 0)
    if thread % WARP == 0:
        k.boxes.release(stage)
    if thread == 0:
        if before + k.t.stages < k.steps:
            k.boxes.acquire(stage, before)
            start_boxes(k, row_block, column_block, before + k.t.stages, stage)
