"""``griddepcontrol`` (PTX ISA 9.7.13.13): kernels that start while the preceding kernels still run.

The simulator runs launches one after the other, so that dependencies always hold. It checks accesses of threads
that have not waited yet: they may only read memory that no kernel has written since the device was last idle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import Decoder, Step, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.memory import Storage
from mlc_compiler.sim.program import Instruction
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
HINT = "put griddepcontrol.wait before the access"


@builds("griddepcontrol")
def control(instruction: Instruction, decoder: Decoder) -> Step:
    """Decode ``griddepcontrol``; either form implies that the kernel may start early."""
    decoder.begins_early = True
    return _wait if instruction.has("wait") else lambda m: None


def _wait(m: Threads) -> None:
    if m.early is None:
        return
    early = m.early & ~m.active()
    m.early = early if (early & m.alive).any() else None


def check_access(m: Threads, storage: Storage, offsets: Array, lanes: Array, store: bool) -> None:
    """Raise Fault when a thread that has not waited stores, or reads memory that a kernel may still write."""
    if m.early is None or storage.constant:
        return
    early = m.early[lanes]
    if not store:
        early = early & storage.is_unsettled(offsets)
    if not early.any():
        return
    at = int(np.flatnonzero(early)[0])
    place = f"{storage.name} address {storage.start + int(offsets[at]):#x}"
    what = f"store to {place}, which" if store else f"read of {place}, which"
    other = "read" if store else "write"
    raise Fault(f"{what} a kernel before this one may still {other}: it has not been waited for", int(lanes[at]), HINT)
