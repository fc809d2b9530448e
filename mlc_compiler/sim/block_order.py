"""Ordering between the thread blocks of a launch: fences and strong accesses of a location (PTX ISA 8.9).

A block that executes a fence and then updates a location publishes its accesses before the fence to blocks that read
the
location and then execute a fence. Within a block, what one thread has acquired counts as acquired by all threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import Decoder, Step, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.program import Instruction
from mlc_compiler.sim.proxies import fence_proxy
from mlc_compiler.sim.races import BLOCK_SHIFT, CLOCK_MASK, THREAD_BITS, THREAD_MASK
from mlc_compiler.sim.threads import BLOCK_ORDER, Threads

Array = npt.NDArray[Any]


class BlockOrder:
    """Order of accesses of other blocks, per block: ``[blocks of the grid, warps]`` clocks, see ``races.Clocks``."""

    def __init__(self, m: Threads):
        self.shape = (int(np.prod(m.launch.grid)), m.warps_per_block)
        self.fenced: dict[int, Array] = {}  # by warp: clocks known at its last fence
        self.observed: dict[int, Array] = {}  # by warp: clocks read from locations since its last fence
        self.acquired: dict[int, Array] = {}  # by block: acquired clocks

    def fence(self, m: Threads, releases: bool, acquires: bool) -> None:
        for warp in np.unique(m.lanes() >> 5).tolist():
            if releases:
                self.fenced[warp] = m.clocks.release(np.array([warp]))[0]
            if acquires and warp in self.observed:
                self._learn(m.first + warp // m.warps_per_block, self.observed.pop(warp))

    def _learn(self, block: int, known: Array) -> None:
        self.acquired[block] = np.maximum(self.acquired[block], known) if block in self.acquired else known.copy()

    def access(self, m: Threads, addresses: Array, lanes: Array, modifiers: tuple[str, ...], writes: bool) -> None:
        """Record a strong access of each lane, in lane order."""
        releases = "release" in modifiers or "acq_rel" in modifiers
        acquires = "acquire" in modifiers or "acq_rel" in modifiers
        for address, warp in dict.fromkeys(zip(addresses.tolist(), (lanes >> 5).tolist())):
            block = m.first + warp // m.warps_per_block
            known = m.launch.locations.setdefault(address, np.zeros(self.shape, np.int32))
            told = known.copy()
            if writes:
                self._publish(m, known, block, warp, releases)
            if acquires:
                self._learn(block, told)
            elif warp in self.observed:
                self.observed[warp] = np.maximum(self.observed[warp], told)
            else:
                self.observed[warp] = told

    def _publish(self, m: Threads, known: Array, block: int, warp: int, releases: bool) -> None:
        own = m.clocks.release(np.array([warp]))[0] if releases else self.fenced.get(warp)
        if own is not None:
            known[block] = np.maximum(known[block], own)
            if block in self.acquired:
                np.maximum(known, self.acquired[block], out=known)

    def ordered(self, codes: Array, blocks: Array) -> Array:
        """Whether the accesses ``codes`` [n, k] of other blocks are ordered before the accesses of ``blocks`` [n]."""
        other, clock = (codes >> BLOCK_SHIFT) - 1, (codes >> THREAD_BITS) & CLOCK_MASK
        result = np.zeros(codes.shape, bool)
        for block, known in self.acquired.items():
            rows = blocks == block
            result[rows] = clock[rows] <= known[other[rows], (codes[rows] & THREAD_MASK) >> 5]
        return result

    def stuck(self, m: Threads) -> Fault | None:
        return None


def order_of(m: Threads) -> BlockOrder:
    if BLOCK_ORDER not in m.devices:
        m.clocks.version += 1
        m.devices[BLOCK_ORDER] = BlockOrder(m)
    found: BlockOrder = m.devices[BLOCK_ORDER]
    return found


def note_strong(
    m: Threads, space: str, addresses: Array, lanes: Array, modifiers: tuple[str, ...], writes: bool
) -> None:
    """Record strong accesses of global memory, in kernels that order blocks."""
    if m.launch.layout.orders_blocks and space in ("global", "generic"):
        order_of(m).access(m, addresses, lanes, modifiers, writes)


@builds("membar", "fence")
def fence(instruction: Instruction, decoder: Decoder) -> Step:
    """A fence; threads run in lock-step on one memory, so that it only affects the ordering between blocks."""
    if instruction.has("cluster") and not instruction.has("mbarrier_init"):
        raise decoder.refuse(instruction, "a fence of a cluster")
    if instruction.has("proxy"):
        return fence_proxy if instruction.has("async") else (lambda m: None)
    if instruction.has("cta") or instruction.has("mbarrier_init"):
        return lambda m: None
    decoder.orders_blocks = True
    releases, acquires = not instruction.has("acquire"), not instruction.has("release")
    return lambda m: order_of(m).fence(m, releases, acquires)
