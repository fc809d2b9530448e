"""TVMScript macros of tensor copies; ``boxes.py`` has the names of ``k.boxes``, its ``Boxes``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def prepare_stages(k, thread, shared):
    """Make the mbarriers of all stages known to the threads and to the TMA unit; ``shared``: stages are freed, too."""
    if thread == 0:
        for stage in T.unroll(k.t.stages):
            k.boxes.prepare(stage)
            if shared:
                k.boxes.prepare_free(stage)
        k.instruction("fence.mbarrier_init")
    T.tvm_storage_sync("shared")


@T.macro
def start_boxes(k, row_block, column_block, step, stage):
    """Start the copies of a step, as one thread."""
    k.boxes.expect(stage)
    k.boxes.copy_activations(row_block, step, stage)
    if k.boxes.w_boxes > 0:
        for half in T.unroll(k.boxes.w_boxes):
            k.boxes.copy_weights(column_block, step, stage, half)
