"""Byte offsets of the fields of a context on a CUDA device, after the head that all contexts have."""

from __future__ import annotations

from ...codegen.host.contexts import HEAD_BYTES

# The driver's device and context, the context's own stream, and the stream of the current call.
DEVICE, ASYNCHRONOUS = HEAD_BYTES, HEAD_BYTES + 4
CONTEXT, OWN_STREAM, STREAM = (HEAD_BYTES + offset for offset in (8, 16, 24))
CONSTANTS = HEAD_BYTES + 32  # the address of the graph functions' constants on the device
FUNCTIONS = HEAD_BYTES + 64  # CUfunction of each kernel, CUmodule of each module, then the graphs
