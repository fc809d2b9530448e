"""Thread block barriers: ``bar``/``barrier`` (PTX ISA 9.7.13.1), and fences."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.decoder import AWAY, Decoder, Step, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.program import Instruction
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
KEY = "barriers"


class Barriers:
    """The lanes waiting at each of the 16 named barriers of every thread block."""

    def __init__(self, m: Threads):
        shape = (16, m.blocks, m.warps_per_block * 32)
        self.waiting = np.zeros(shape, bool)
        self.arrived = np.zeros(shape, bool)  # by bar.arrive, without waiting
        self.resume = np.zeros(m.size, np.int64)

    def complete(self, m: Threads, barrier: int, expected: int) -> None:
        """Release the blocks in which ``expected`` threads have arrived."""
        here = self.waiting[barrier] | self.arrived[barrier]
        counts = here.sum(axis=1)
        done = counts >= expected
        if (counts > expected).any():
            raise Fault(f"barrier {barrier} got {counts.max()} threads; expected {expected}", self._lane(here))
        if not done.any():
            return
        released = (self.waiting[barrier] & done[:, None]).reshape(-1)
        self._check_converged(m, released, barrier)
        participants = (here & done[:, None]).reshape(m.blocks, -1, 32).any(axis=2)
        m.clocks.synchronize(participants)
        m.counts.barriers += int(done.sum())
        for pc in np.unique(self.resume[released]):
            m.push(int(pc), released & (self.resume == pc))
        self.waiting[barrier][done] = False
        self.arrived[barrier][done] = False

    def _check_converged(self, m: Threads, released: Array, barrier: int) -> None:
        """Check that all threads of a warp reached the barrier at the same instruction."""
        places = np.where(released, self.resume, -1).reshape(-1, 32)
        highest = places.max(axis=1, keepdims=True)
        differ = (places >= 0) & (places != highest)
        if differ.any():
            lane = int(np.flatnonzero(differ.reshape(-1))[0])
            other = int(places[lane // 32].argmax()) + lane // 32 * 32
            raise Fault(
                f"divergent barrier {barrier}: {m.thread_name(lane)} and {m.thread_name(other)} of one warp wait at "
                "different instructions",
                lane,
                "move the barrier out of the condition",
            )

    def _lane(self, here: Array) -> int:
        return int(np.flatnonzero(here.reshape(-1))[0])

    def stuck(self, m: Threads) -> Fault | None:
        """The fault that describes a deadlock at a barrier, or None."""
        for barrier in range(16):
            waiting = self.waiting[barrier].reshape(-1)
            if waiting.any():
                lane = int(np.flatnonzero(waiting)[0])
                same = m.lane_block == m.lane_block[lane]
                absent = np.flatnonzero(same & ~waiting & (m.lane_thread < m.block_threads))
                other = f"{m.thread_name(int(absent[0]))} does not come" if len(absent) else "too few threads"
                state = " (it has exited)" if len(absent) and not m.alive[absent[0]] else ""
                m.pc = int(self.resume[lane]) - 1
                return Fault(
                    f"divergent barrier {barrier}: {m.thread_name(lane)} waits, {other}{state}",
                    lane,
                    "all threads of the block have to reach the barrier",
                )
        return None


@builds("bar", "barrier", control=True)
def barrier(instruction: Instruction, decoder: Decoder) -> Step:
    """``bar.sync``, ``bar.arrive``, ``bar.warp.sync`` and the ``barrier.cta`` variants."""
    if instruction.has("warp"):
        return _warp_barrier(instruction, decoder)
    if instruction.has("cluster"):
        raise decoder.refuse(instruction, "a barrier of a cluster")
    if instruction.has("red"):
        raise decoder.refuse(instruction)
    numbers = [decoder.source(operand, "u32") for operand in instruction.operands]
    arrive_only = instruction.has("arrive")

    def step(m: Threads) -> int | None:
        which, expected = _uniform(m, numbers, m.block_threads)
        if m.mask is None and expected == m.block_threads and not arrive_only and KEY not in m.devices:
            m.clocks.synchronize(np.ones((m.blocks, m.warps_per_block), bool))
            m.counts.barriers += m.blocks
            return None
        return arrive(m, which, expected, arrive_only)

    return step


def arrive(m: Threads, which: int, expected: int, arrive_only: bool) -> int | None:
    barriers: Barriers = m.devices.setdefault(KEY, Barriers(m))
    active = m.active()
    table = barriers.arrived if arrive_only else barriers.waiting
    both = (barriers.arrived | barriers.waiting)[which].reshape(-1) & active
    if both.any():
        raise Fault(f"barrier {which}: a thread arrives twice", int(np.flatnonzero(both)[0]))
    if arrive_only:
        m.push(m.pc + 1, active)
    barriers.resume[active] = m.pc + 1
    table[which] |= active.reshape(m.blocks, -1)
    barriers.complete(m, which, expected)
    return AWAY


def _uniform(m: Threads, numbers: list[Any], threads: int) -> tuple[int, int]:
    """The barrier number and thread count, which must be uniform over the active lanes."""
    found = []
    for number in numbers:
        values = np.unique(m.pick(number(m), m.lanes()))
        if len(values) > 1:
            raise Fault("threads that arrive together name different barriers or thread counts", int(m.lanes()[0]))
        found.append(int(values[0]))
    which = found[0] if found else 0
    if not 0 <= which < 16:
        raise Fault(f"barrier {which}; expected 0 to 15", int(m.lanes()[0]))
    return which, found[1] if len(found) > 1 else threads


def _warp_barrier(instruction: Instruction, decoder: Decoder) -> Step:
    members = decoder.source(instruction.operands[0], "u32")

    def step(m: Threads) -> int | None:
        if not m.gather(member_lanes(m, members(m))):
            return AWAY
        synchronize_warps(m)
        return None

    return step


def member_lanes(m: Threads, members: Array) -> Array:
    """The mask of the lanes named by the member masks of the active warps."""
    active = m.active().reshape(-1, 32)
    mask = m.by_warp(members)[np.arange(m.warps), active.argmax(axis=1)]
    named = ((mask[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(bool)
    outside = active & ~named
    if outside.any():
        lane = int(np.flatnonzero(outside)[0])
        raise Fault("a thread executes a .sync instruction whose member mask does not name it", lane)
    return (named & active.any(axis=1, keepdims=True)).reshape(-1)


def synchronize_warps(m: Threads) -> None:
    """Order the memory accesses within every warp whose running threads are all active."""
    active = m.active().reshape(-1, 32)
    alive = m.alive.reshape(-1, 32)
    complete = active.any(axis=1) & ~(alive & ~active).any(axis=1)
    m.clocks.advance(complete.reshape(m.blocks, -1))
