"""Counting of thread blocks, so that the last one to finish sees the results of the others."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from .warps import instruction


@T.macro
def arrive(arrived, counter, blocks, is_first):
    """Count the arrival of a thread block, after all of its stores; all of its threads call this.

    arrived: uint32 [1], shared; becomes ``blocks - 1`` in the last of ``blocks`` blocks (int32), which then sees the
    stores of all of them. counter: an element of a buffer of scope ``ZEROED``; the last block sets it to 0 again.
    is_first: true for the one thread of a block that updates the counter.
    """
    T.tvm_storage_sync("shared")
    if is_first:
        arrived[0] = T.uint32(0)
        if blocks > 1:
            instruction("fence.release")
            instruction("atom.inc.u32", arrived[0], counter, blocks - 1)
            instruction("fence.acquire")
    T.tvm_storage_sync("shared")
