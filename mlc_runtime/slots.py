"""Recurrent states: arrays of a fixed size for each sequence."""

from __future__ import annotations

import numpy as np

from mlc_runtime.dtypes import dtype_of
from mlc_runtime.memory import HOST, HostMemory
from mlc_runtime.model_spec import RecurrentSpec

NO_SLOT = -1


class RecurrentState:
    """State arrays with one slot for each row (one per sequence).

    ``inputs`` by name: each array as [rows, *shape], and slots, int32 [rows], the slot of each row, NO_SLOT for rows
    without a sequence. On the host, the operating system commits a slot's memory at the first write.
    """

    def __init__(self, spec: RecurrentSpec, rows: int, memory: HostMemory = HOST):
        self._memory = memory
        self._slots = memory.mirrored((rows,), np.dtype(np.int32))
        self._slots[:] = NO_SLOT
        memory.send(self._slots)
        self._arrays = {a.name: memory.zeros((rows, *a.shape), dtype_of(a.dtype)) for a in spec.arrays}
        self.inputs = {spec.prefix + name: array for name, array in {**self._arrays, "slots": self._slots}.items()}

    def begin(self, row: int) -> None:
        """Make the row an empty sequence."""
        self._set(row, row)

    def end(self, row: int) -> None:
        """Remove the row's sequence."""
        self._set(row, NO_SLOT)
        self._clear(row)

    def can_truncate(self, row: int, length: int) -> bool:
        """Whether the state after ``length`` tokens, fewer than all, is available; True only for 0."""
        return length == 0

    def truncate(self, row: int, length: int) -> None:
        """Remove all tokens; ``can_truncate`` must hold."""
        self._clear(row)

    def fork(self, row: int, length: int, copy: int) -> None:
        """Give the empty row ``copy`` the state of a row."""
        for array in self._arrays.values():
            self._memory.copy_slot(array, row, copy)

    def _clear(self, row: int) -> None:
        for array in self._arrays.values():
            self._memory.clear_slot(array, row)

    def _set(self, row: int, slot: int) -> None:
        self._slots[row] = slot
        self._memory.send(self._slots[row : row + 1])
