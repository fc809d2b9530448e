"""The threads simulated together: some blocks of one launch, in lock-step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.memory import Memory, Storage
from mlc_compiler.sim.program import Kernel
from mlc_compiler.sim.races import Accessors, Clocks, Shadow

Array = npt.NDArray[Any]
Dim3 = tuple[int, int, int]

SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW = 1 << 56, 2 << 56, 3 << 56  # bases of generic addresses of the other spaces
WORDS = {1: np.dtype(bool), 8: np.dtype("u1"), 16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}
BLOCK_ORDER = "block order"  # key of the device that orders blocks
UNSET = 0xDEADBEEFDEADBEEF  # content of registers before their first write


@dataclass(frozen=True)
class Layout:
    """Addresses of the kernel's variables, and the narrowest accesses found by the decoder.

    offsets: offsets of shared, local and parameter variables; dynamic_offset: start of external shared arrays.
    """

    offsets: dict[str, int]
    shared_bytes: int
    local_bytes: int
    parameter_bytes: int
    shared_granule: int
    global_granule: int
    orders_blocks: bool  # by fences, acquire and release
    begins_early: bool  # before the preceding kernel has ended


@dataclass(eq=False)
class Launch:
    """State shared by all blocks of a launch."""

    kernel: Kernel
    layout: Layout
    memory: Memory
    grid: Dim3
    block: Dim3
    parameters: Storage
    shared_bytes: int  # static and dynamic
    races: bool
    counts: Counts
    locations: dict[int, Array] = field(default_factory=dict)  # clocks published by updating an address
    shadows: dict[int, tuple[Storage, Shadow]] = field(default_factory=dict)  # by ``id`` of global allocations

    def shadow(self, storage: Storage) -> Shadow | None:
        """The access history of a global allocation in this launch; None for constants, and without race detection."""
        if not self.races or storage.constant:
            return None
        if id(storage) not in self.shadows:
            shadow = Shadow(len(storage.data), self.layout.global_granule, None)
            self.shadows[id(storage)] = (storage, shadow)
        return self.shadows[id(storage)][1]


class Threads:
    """Registers and memories of the blocks ``first ... first + blocks - 1`` of a launch.

    A register is an array over the lanes: 32 per warp, warps of a block in order, blocks in order. Lanes of a partial
    warp without a thread are never active. An array of one element stands for all lanes.
    mask: the active lanes, None for all; whole: whether no other lane will run again, so that registers need no
    merging.
    """

    def __init__(self, launch: Launch, first: int, blocks: int):
        self.launch, self.first, self.blocks = launch, first, blocks
        self.counts, self.memory = launch.counts, launch.memory
        x, y, z = launch.block
        self.block_threads = x * y * z
        self.warps_per_block = -(-self.block_threads // 32)
        self.warps = self.warps_per_block * blocks
        self.size = self.warps * 32
        self.everyone = np.arange(self.size)
        self.lane_block = self.everyone // (self.warps_per_block * 32)
        self.lane_thread = self.everyone % (self.warps_per_block * 32)
        self.block_number = self.lane_block + first
        self.alive = self.lane_thread < self.block_threads
        self.early = self.alive if launch.layout.begins_early else None  # lanes still before griddepcontrol.wait
        self.registers = [np.full(1, UNSET & ((1 << bits) - 1), WORDS[bits]) for bits in launch.kernel.registers]
        self.mask: Array | None = None
        self.whole = True
        self.pc = 0
        self.executed_warps = 0
        self.clocks = Clocks(blocks, self.warps_per_block)
        self._all_accessors: tuple[int, Accessors] | None = None
        self.shared_stride = -(-launch.shared_bytes // 128) * 128
        shared = np.zeros(self.shared_stride * blocks, np.uint8)
        self.shared = Storage("shared", shared, np.zeros_like(shared))
        self.shared_shadow = (
            Shadow(len(shared), launch.layout.shared_granule, self.warps_per_block) if launch.races else None
        )
        self.local_stride = -(-launch.layout.local_bytes // 32) * 32
        local = np.zeros(self.local_stride * self.size, np.uint8)
        self.local = Storage("local", local, np.zeros_like(local))
        self.specials: dict[str, Array] = {}
        self.pending: dict[int, Array] = {}  # runnable lanes by program counter
        self.deferred: dict[int, Array] = {}  # lanes that yield while others can run
        self.parked: dict[int, Array] = {}  # lanes that wait for the rest of their warp, by program counter
        self.carry = np.zeros(1, bool)  # carry flag of the last instruction with .cc
        self.held: dict[int, Array] = {}  # registers still being written by an asynchronous instruction, with its lanes
        self.devices: dict[str, Any] = {}  # barriers, copies in flight: each owned by the module that models it

    # -- lanes

    def active(self) -> Array:
        """The active lanes as a mask."""
        return np.ones(self.size, bool) if self.mask is None else self.mask

    def lanes(self) -> Array:
        """The active lanes' indices."""
        return self.everyone if self.mask is None else np.flatnonzero(self.mask)

    def pick(self, values: Array, lanes: Array) -> Array:
        """Select the values of a register at ``lanes``, which must come from ``lanes()``."""
        if len(values) == 1:
            return np.broadcast_to(values, len(lanes))
        return values if self.mask is None else values[lanes]

    def write(self, register: int, values: Array) -> None:
        """Set a register's active lanes from an array over all lanes, of the register's dtype."""
        if not self.whole:
            values = np.where(self.active(), values, self.registers[register])
        self.registers[register] = values

    def scatter(self, register: int, values: Array, lanes: Array) -> None:
        """Set a register at ``lanes``, which must come from ``lanes()``, one value per lane."""
        if self.mask is None:
            self.registers[register] = np.ascontiguousarray(values)
            return
        new = np.empty(self.size, self.registers[register].dtype)
        new[:] = self.registers[register]
        new[lanes] = values
        self.registers[register] = new

    def accessors(self, lanes: Array) -> Accessors:
        """The accessing threads for race detection; cached for all lanes while no clock changes."""
        version = self.clocks.version
        if lanes is self.everyone and self._all_accessors is not None and self._all_accessors[0] == version:
            return self._all_accessors[1]
        found = Accessors(self.clocks, lanes, self.block_number[lanes], self.devices.get(BLOCK_ORDER))
        if lanes is self.everyone:
            self._all_accessors = (version, found)
        return found

    def by_warp(self, values: Array) -> Array:
        """Reshape a register to [warps, 32]."""
        return np.broadcast_to(values, self.size).reshape(self.warps, 32)

    # -- control

    def push(self, pc: int, mask: Array) -> None:
        """Make the lanes of ``mask`` runnable at ``pc``."""
        self.pending[pc] = self.pending[pc] | mask if pc in self.pending else mask

    def select(self) -> bool:
        """Activate the lanes with the lowest program counter; False when no lane can run."""
        if not self.pending:
            self.pending, self.deferred = self.deferred, {}
        if not self.pending:
            return False
        self.pc = min(self.pending)
        self.activate(self.pending.pop(self.pc))
        self.limit = min(self.pending, default=1 << 60)
        return True

    def yield_to_others(self, pc: int) -> None:
        """Let other runnable lanes run before those at ``pc``, which wait for them."""
        waiting = self.pending.pop(pc)
        if self.pending:
            self.deferred[pc] = waiting
        else:
            self.pending[pc] = waiting

    def activate(self, mask: Array) -> None:
        count = np.count_nonzero(mask)
        self.mask = None if count == self.size else mask
        self.whole = count == np.count_nonzero(self.alive)
        self.executed_warps = int(mask.reshape(-1, 32).any(axis=1).sum())

    def retire(self) -> None:
        """Retire the active lanes."""
        self.alive = self.alive & ~self.active()

    def gather(self, members: Array, together: int = 32) -> bool:
        """Whether the active lanes of each warp are all running lanes of ``members`` [lanes].

        If some are missing, the active lanes of their warps are parked at this instruction until the rest arrive,
        and the others stay active; returns False when none stays. together: 32, or 128 for warpgroups.
        """
        if self.pc in self.parked:
            self.activate(self.active() | self.parked.pop(self.pc))
        if self.mask is None:
            return True
        missing = (members & self.alive & ~self.mask).reshape(-1, together).any(axis=1)
        if not missing.any():
            return True
        waits = np.repeat(missing, together) & self.mask
        if waits.any():
            self.parked[self.pc] = waits
            ready = self.mask & ~waits
            if not ready.any():
                return False
            self.activate(ready)
        return True

    # -- names

    def thread_name(self, lane: int) -> str:
        return self.name_of(int(self.block_number[lane]), int(self.lane_thread[lane]))

    def name_of(self, block: int, thread: int) -> str:
        """Describe a thread by its indices; its block need not be simulated at the moment."""
        x, y, _ = self.launch.block
        gx, gy, _ = self.launch.grid
        return (
            f"thread ({thread % x}, {thread // x % y}, {thread // (x * y)}) "
            f"of block ({block % gx}, {block // gx % gy}, {block // (gx * gy)})"
        )

    def special(self, name: str) -> Array:
        """The value of a special register, as uint32 or uint64."""
        if name not in self.specials:
            self.specials[name] = self._special(name)
        return self.specials[name]

    def _special(self, name: str) -> Array:
        root, _, axis = name[1:].partition(".")
        lane = (self.everyone & 31).astype(np.uint32)
        if root in ("tid", "ntid", "ctaid", "nctaid"):
            return self._dimension(root, "xyz".index(axis))
        one = lambda value: np.array([value], np.uint32)  # noqa: E731
        values = {
            "laneid": lambda: lane,
            "warpid": lambda: (self.lane_thread >> 5).astype(np.uint32),
            "nwarpid": lambda: one(self.warps_per_block),
            "smid": lambda: (self.block_number % 132).astype(np.uint32),
            "nsmid": lambda: one(132),
            "gridid": lambda: np.array([1], np.uint64),
            "lanemask_eq": lambda: np.uint32(1) << lane,
            "lanemask_lt": lambda: (np.uint32(1) << lane) - np.uint32(1),
            "lanemask_le": lambda: (np.uint32(2) << lane) - np.uint32(1),
            "lanemask_gt": lambda: ~((np.uint32(2) << lane) - np.uint32(1)),
            "lanemask_ge": lambda: ~((np.uint32(1) << lane) - np.uint32(1)),
            "clock": lambda: one(0),
            "clock64": lambda: np.array([0], np.uint64),
            "globaltimer": lambda: np.array([0], np.uint64),
            "cluster_ctarank": lambda: one(0),
            "cluster_nctarank": lambda: one(1),
            "dynamic_smem_size": lambda: one(self.launch.shared_bytes - self.launch.layout.shared_bytes),
            "total_smem_size": lambda: one(self.launch.shared_bytes),
        }
        if root not in values:
            raise Fault(f"special register {name} is not simulated")
        return np.asarray(values[root]())

    def _dimension(self, root: str, axis: int) -> Array:
        sizes: Sequence[int] = self.launch.block if root in ("tid", "ntid") else self.launch.grid
        if root in ("ntid", "nctaid"):
            return np.array([sizes[axis]], np.uint32)
        number = self.lane_thread if root == "tid" else self.block_number
        before = int(np.prod(sizes[:axis]))
        return (number // before % sizes[axis]).astype(np.uint32)
