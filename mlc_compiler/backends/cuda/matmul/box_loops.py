"""TVMScript macros of tensor copies; ``k.boxes`` is a ``boxes.Boxes``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def prepare_stages(k, thread, shared):
    """Initialise the mbarriers of all stages; ``shared``: also those that tell that a stage may be overwritten."""
    if thread == 0:
        for stage in T.unroll(k.t.stages):
            k.boxes.prepare(stage)
            if shared:
                k.boxes.prepare_free(stage)
        k.instruction("fence.mbarrier_init")
    T.tvm_storage_sync("shared")


@T.macro
def start_boxes(k, row_block, column_block, step, stage):
    """Start the copies of a step, from one thread."""
    k.boxes.expect(stage)
    k.boxes.copy_activations(row_block, step, stage)
    if k.boxes.w_boxes > 0:
        for half in T.unroll(k.boxes.w_boxes):
            k.boxes.copy_weights(column_block, step, stage, half)
