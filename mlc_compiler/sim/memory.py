"""Device memory: allocations at fixed addresses, with the initialization state of each byte."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.backends.cuda.machine import SECTOR
from mlc_compiler.sim.errors import Fault, SimulationError
from mlc_compiler.sim.program import Variable

Array = npt.NDArray[Any]

FIRST_ADDRESS = 1 << 45  # unused address range of processes on x86-64 and AArch64 Linux
ALIGNMENT = 256
NEVER, WRITTEN, PENDING = 0, 1, 2  # state of a byte; PENDING: destination of a copy that no thread has waited for
ALL_WRITTEN = {width: int.from_bytes(b"\1" * width, "little") for width in (1, 2, 4, 8)}


@dataclass(eq=False)
class Storage:
    """The memory behind loads and stores of one kind.

    data: uint8, a multiple of 32 bytes; state: the state of each byte, None when all are initially written;
    start: the address of the first byte; low, high: the addresses that may be accessed. unsettled: for each sector,
    whether a kernel that may still run may have written it; None: no sector.
    """

    name: str
    data: Array
    state: Array | None
    start: int = 0
    low: int = 0
    high: int = 0
    constant: bool = False
    unsettled: Array | None = None
    owner: object = field(default=None, repr=False)

    def load(self, offsets: Array, width: int, dtype: np.dtype[Any], lanes: Array) -> Array:
        """Load elements [n, width // itemsize] at byte offsets, which must be aligned and within bounds."""
        units = offsets // width
        if self.state is not None:
            self._check_written(units, width, offsets, lanes)
        return self.units(dtype, width)[units]

    def store(self, offsets: Array, width: int, values: Array) -> None:
        units = offsets // width
        self.units(values.dtype, width)[units] = values
        if self.state is not None:
            self.mark(offsets, width, WRITTEN)

    def units(self, dtype: np.dtype[Any], width: int) -> Array:
        """The data as rows of ``width`` bytes."""
        return self.data.view(dtype).reshape(-1, width // dtype.itemsize)

    def mark(self, offsets: Array, width: int, state: int) -> None:
        if self.state is not None:
            word = min(width, 8)
            rows = self.state.view(f"u{word}").reshape(-1, width // word)
            rows[offsets // width] = ALL_WRITTEN[word] * state

    def unsettle(self, offsets: Array | slice) -> None:
        """Record that a kernel writes the sectors at byte offsets."""
        if self.unsettled is None:
            self.unsettled = np.zeros(len(self.data) // SECTOR, bool)
        self.unsettled[offsets if isinstance(offsets, slice) else offsets // SECTOR] = True

    def is_unsettled(self, offsets: Array) -> Array:
        """Whether a kernel that may still run may have written the sectors at byte offsets."""
        return np.zeros(len(offsets), bool) if self.unsettled is None else self.unsettled[offsets // SECTOR]

    def _check_written(self, units: Array, width: int, offsets: Array, lanes: Array) -> None:
        assert self.state is not None
        word = min(width, 8)
        states = self.state.view(f"u{word}").reshape(-1, width // word)[units]
        good = states == ALL_WRITTEN[word]
        if good.all():
            return
        at = int(np.flatnonzero(~good.all(axis=1))[0])
        values = self.state[offsets[at] : offsets[at] + width]
        address = self.start + int(offsets[at])
        if (values == PENDING).any():
            raise Fault(
                f"missing cp.async wait: {self.name} address {address:#x} is read before its copy was waited for",
                int(lanes[at]),
                "put cp.async.wait_group (or wait_all, or an mbarrier wait) before the read",
            )
        raise Fault(f"uninitialized read of {width} bytes at {self.name} address {address:#x}", int(lanes[at]))


class Memory:
    """The memory of a device.

    Allocated addresses start at 2**45 and leave gaps, so that out-of-bounds accesses are detected. Host memory can be
    registered at its own address, like pinned memory whose device pointers are host pointers.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._storages: list[Storage] = []
        self._next = FIRST_ADDRESS
        self._variables: dict[int, tuple[int, Variable]] = {}  # by ``id``, because modules may use the same names

    def allocate(self, content: int | Array, name: str = "global", initialized: bool = False) -> int:
        """Allocate memory and return its address.

        content: a size in bytes, or an array whose bytes are copied (and are initialized).
        initialized: whether the zeroed bytes of an allocation by size count as written.
        """
        nbytes = content if isinstance(content, int) else content.nbytes
        padded = -(-max(nbytes, 1) // 32) * 32
        data = np.zeros(padded, np.uint8)
        if not isinstance(content, int):
            data[:nbytes] = np.frombuffer(content.tobytes(), np.uint8)
        known = initialized or not isinstance(content, int)
        state = None if known else np.zeros(padded, np.uint8)
        start = self._next
        self._next += -(-padded // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        self._insert(Storage(name, data, state, start, start, start + nbytes))
        return start

    def register(
        self, address: int, nbytes: int, name: str = "global", initialized: bool = True, owner: object = None
    ) -> None:
        """Make host memory accessible at its own address; ``owner`` is kept alive.

        Raises SimulationError when it overlaps another allocation.
        """
        start, end = address & ~31, -(-(address + nbytes) // 32) * 32
        at = bisect.bisect_right(self._starts, address)
        before, after = self._storages[max(at - 1, 0) : at], self._storages[at : at + 1]
        if any(s.high > address for s in before) or any(s.low < address + nbytes for s in after):
            raise SimulationError(f"{nbytes} bytes at {address:#x} overlap memory that is registered already")
        data = np.ctypeslib.as_array((ctypes.c_uint8 * (end - start)).from_address(start))
        state = None if initialized else np.zeros(end - start, np.uint8)
        self._insert(Storage(name, data, state, start, address, address + nbytes, owner=owner))

    def free(self, address: int) -> None:
        """Free the allocation that starts at ``address``."""
        storage = self._storages.pop(self._index(address))
        self._starts.remove(storage.low)

    def view(self, address: int, dtype: npt.DTypeLike, shape: Sequence[int]) -> Array:
        """An array view of the memory at ``address``; writing to it does not mark it written (see ``mark_written``)."""
        storage = self._storages[self._index(address)]
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if address + nbytes > storage.high:
            raise SimulationError(f"{nbytes} bytes at {address:#x} end beyond the allocation {storage.name}")
        first = address - storage.start
        return storage.data[first : first + nbytes].view(dtype).reshape(shape)

    def mark_written(self, address: int, nbytes: int) -> None:
        """Mark bytes as initialized, for example after a copy from the host."""
        storage = self._storages[self._index(address)]
        if storage.state is not None:
            storage.state[address - storage.start : address - storage.start + nbytes] = WRITTEN

    def unsettle(self, address: int) -> None:
        """Record that a kernel that may still run may write the whole allocation at ``address``."""
        self._storages[self._index(address)].unsettle(slice(None))

    def settle(self) -> None:
        """Record that all kernels have ended."""
        for storage in self._storages:
            storage.unsettled = None

    def variable(self, variable: Variable) -> int:
        """The address of a module's .const or .global variable, which is allocated at its first use."""
        if id(variable) not in self._variables:
            address = self.allocate(variable.nbytes, variable.name, initialized=True)
            if variable.data is not None:
                self.view(address, np.uint8, (variable.nbytes,))[:] = np.frombuffer(variable.data, np.uint8)
            self._storages[self._index(address)].constant = variable.space == "const"
            self._variables[id(variable)] = (address, variable)
        return self._variables[id(variable)][0]

    def find(self, address: int) -> Storage | None:
        """The allocation that contains ``address``, or None."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._storages[at].high:
            return None
        return self._storages[at]

    def before(self, address: int) -> Storage | None:
        """The last allocation that begins at or before ``address``, for messages."""
        at = bisect.bisect_right(self._starts, address)
        return self._storages[at - 1] if at else None

    def _index(self, address: int) -> int:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= max(self._storages[at].high, self._storages[at].low + 1):
            raise SimulationError(f"no allocation holds the address {address:#x}")
        return at

    def _insert(self, storage: Storage) -> None:
        at = bisect.bisect(self._starts, storage.low)
        self._starts.insert(at, storage.low)
        self._storages.insert(at, storage)
