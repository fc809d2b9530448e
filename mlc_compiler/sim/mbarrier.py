"""``mbarrier`` objects (PTX ISA 9.7.13.15): arrivals, and bytes of asynchronous copies, complete a phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.decoder import AWAY, Decoder, Step, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.loads import addresses
from mlc_compiler.sim.memory import WRITTEN
from mlc_compiler.sim.program import Immediate, Instruction, Operand
from mlc_compiler.sim.threads import SHARED_WINDOW, Threads

Array = npt.NDArray[Any]
KEY = "mbarriers"


@dataclass(frozen=True)
class Delivery:
    """A copy to shared memory in flight: rows of bytes at offsets of the shared storage."""

    offsets: Array
    data: Array

    def perform(self, m: Threads) -> None:
        m.shared.store(self.offsets, self.data.shape[1], self.data)


@dataclass(eq=False)
class MBarrier:
    """An mbarrier object. pending: arrivals missing in the current phase; bytes: transaction bytes still expected."""

    count: int
    pending: int
    known: Array  # clocks of the arrived warps, see ``Clocks``
    visible: Array  # clocks of completed phases
    phase: int = 0
    bytes: int = 0
    flying: list[Delivery] = field(default_factory=list)
    waiting: dict[int, Array] = field(default_factory=dict)  # suspended lanes by program counter

    def settle(self, m: Threads) -> None:
        """Perform the copies in flight once all threads have arrived; complete the phase if no bytes are missing."""
        if self.pending:
            return
        for delivery in self.flying:
            delivery.perform(m)
            self.bytes -= delivery.data.size
        self.flying.clear()
        if self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            self.visible = self.known.copy()

    def over(self, tokens: Array, parity: bool) -> Array:
        """Whether the phases named by ``tokens`` (arrival tokens, or parities) are complete."""
        return ((self.phase ^ tokens) & 1) == 1 if parity else tokens < self.phase

    def wake(self, m: Threads) -> None:
        """Let suspended lanes test again if the phase has changed."""
        before = self.phase
        if self.waiting:
            self.settle(m)
        if self.phase != before:
            for pc, mask in self.waiting.items():
                m.push(pc, mask)
            self.waiting.clear()


class MBarriers:
    """All mbarrier objects by (block among those simulated, shared address)."""

    def __init__(self, m: Threads):
        self.objects: dict[tuple[int, int], MBarrier] = {}

    def at(self, m: Threads, block: int, address: int, lane: int) -> MBarrier:
        found = self.objects.get((block, address))
        if found is None:
            raise Fault(f"no mbarrier was initialized at shared address {address:#x}", lane)
        return found

    def stuck(self, m: Threads) -> Fault | None:
        """The fault that describes a deadlock: all objects that threads of one block wait for; None if none waits."""
        waits = [(key, barrier) for key, barrier in self.objects.items() if barrier.waiting]
        if not waits:
            return None
        block = waits[0][0][0]
        m.pc, mask = min(waits[0][1].waiting.items())
        needs = (
            f"phase {barrier.phase} of the mbarrier at shared address {address:#x} still needs {barrier.pending} of "
            f"{barrier.count} arrivals and {barrier.bytes} bytes"
            for (of, address), barrier in waits
            if of == block
        )
        return Fault(f"the wait for an mbarrier does not end: {'; '.join(needs)}", int(np.flatnonzero(mask)[0]))


def mbarriers_of(m: Threads) -> MBarriers:
    if KEY not in m.devices:
        m.devices[KEY] = MBarriers(m)
    found: MBarriers = m.devices[KEY]
    return found


def shared_addresses(m: Threads, places: Array, lanes: Array) -> Array:
    """Addresses within shared memory, converted from generic ones if necessary."""
    windows = places & ~((1 << 56) - 1)
    wrong = (windows != 0) & (windows != SHARED_WINDOW)
    if wrong.any():
        raise Fault("an mbarrier lies in shared memory; got another address", int(lanes[int(wrong.argmax())]))
    return places & ((1 << 56) - 1)


def groups(m: Threads, places: Array, lanes: Array) -> Iterator[tuple[MBarrier, Array]]:
    """The objects addressed by lanes, each with the positions of its lanes."""
    keys = (m.lane_block[lanes] << 32) | places
    barriers = mbarriers_of(m)
    for key in np.unique(keys):
        which = np.flatnonzero(keys == key)
        yield barriers.at(m, int(key >> 32), int(key & 0xFFFFFFFF), int(lanes[which[0]])), which


def note(m: Threads, places: Array, lanes: Array, kind: str) -> None:
    """Record an access of an object, whose initialization must be ordered before its use."""
    for part in access.parts(m, "shared", places, lanes, 8, store=True, counted=False):
        access.note(m, part, 8, kind)
        part.storage.mark(part.offsets, 8, WRITTEN)


def arrive(m: Threads, places: Array, lanes: Array, counts: Array, expected: Array) -> Array:
    """Arrive ``counts`` times per lane and expect ``expected`` more bytes; returns the phases before."""
    phases = np.zeros(len(lanes), np.uint64)
    note(m, places, lanes, "update")
    for barrier, which in groups(m, places, lanes):
        if barrier.pending == 0:
            barrier.settle(m)
        phases[which] = barrier.phase
        barrier.bytes += int(expected[which].sum())
        barrier.pending -= int(counts[which].sum())
        if barrier.pending < 0:
            raise Fault(
                f"mbarrier with a count of {barrier.count} got {-barrier.pending} arrivals too many",
                int(lanes[which[0]]),
            )
        warps = np.unique(lanes[which] >> 5)
        barrier.known = np.maximum(barrier.known, m.clocks.release(warps).max(axis=0))
        barrier.wake(m)
    return phases


def deliver(m: Threads, place: int, lane: int, delivery: Delivery) -> None:
    """Add a copy issued by ``lane`` to the object on which it completes."""
    lanes = np.array([lane])
    note(m, np.array([place]), lanes, "update")
    for barrier, _ in groups(m, np.array([place]), lanes):
        barrier.known = np.maximum(barrier.known, m.clocks.release(lanes >> 5)[0])
        barrier.flying.append(delivery)
        barrier.wake(m)


@builds("mbarrier", control=True)
def mbarrier(instruction: Instruction, decoder: Decoder) -> Step:
    decoder.accesses("shared", 8)
    forms = {
        "init": _init,
        "inval": _invalidate,
        "arrive": _arrive,
        "expect_tx": _expect,
        "try_wait": _wait,
        "test_wait": _wait,
    }
    form = forms.get(instruction.opcode[1])
    if form is None or any(part.startswith("shared::cluster") and "remote" in part for part in instruction.opcode):
        raise decoder.refuse(instruction)
    return form(instruction, decoder)


def _init(instruction: Instruction, decoder: Decoder) -> Step:
    at = addresses(instruction.operands[0], decoder)
    number = decoder.source(instruction.operands[1], "u32")

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        places = shared_addresses(m, at(m, lanes), lanes)
        note(m, places, lanes, "write")
        for lane, place, count in zip(lanes.tolist(), places.tolist(), m.pick(number(m), lanes).tolist()):
            known = np.zeros(m.warps_per_block, np.int32)
            mbarriers_of(m).objects[int(m.lane_block[lane]), place] = MBarrier(count, count, known, known)
        return None

    return step


def _invalidate(instruction: Instruction, decoder: Decoder) -> Step:
    at = addresses(instruction.operands[0], decoder)

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        places = shared_addresses(m, at(m, lanes), lanes)
        note(m, places, lanes, "write")
        for lane, place in zip(lanes.tolist(), places.tolist()):
            mbarriers_of(m).at(m, int(m.lane_block[lane]), place, lane)
            del mbarriers_of(m).objects[int(m.lane_block[lane]), place]
        return None

    return step


def _arrive(instruction: Instruction, decoder: Decoder) -> Step:
    """``mbarrier.arrive[.expect_tx] [state,] [object] [, count or bytes]``."""
    has_state = len(instruction.operands) > 1 and not _is_address(instruction.operands[0])
    target = decoder.destination(instruction.operands[0]) if has_state else None
    operands = instruction.operands[1:] if has_state else instruction.operands
    at = addresses(operands[0], decoder)
    number = decoder.source(operands[1] if len(operands) > 1 else Immediate(1), "u32")
    expects = instruction.has("expect_tx")

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        numbers = m.pick(number(m), lanes).astype(np.int64)
        once, nothing = np.ones_like(numbers), np.zeros_like(numbers)
        places = shared_addresses(m, at(m, lanes), lanes)
        phases = arrive(m, places, lanes, once if expects else numbers, numbers if expects else nothing)
        if target is not None:
            every = np.zeros(m.size, np.uint64)
            every[lanes] = phases
            target(m, every)
        return None

    return step


def _is_address(operand: Operand) -> bool:
    return hasattr(operand, "base")


def _expect(instruction: Instruction, decoder: Decoder) -> Step:
    at = addresses(instruction.operands[0], decoder)
    number = decoder.source(instruction.operands[1], "u32")

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        numbers = m.pick(number(m), lanes).astype(np.int64)
        arrive(m, shared_addresses(m, at(m, lanes), lanes), lanes, np.zeros_like(numbers), numbers)
        return None

    return step


def _wait(instruction: Instruction, decoder: Decoder) -> Step:
    """``try_wait`` suspends threads until the phase is complete; ``test_wait`` returns immediately."""
    target, at = decoder.destination(instruction.operands[0]), addresses(instruction.operands[1], decoder)
    parity = instruction.has("parity")
    token = decoder.source(instruction.operands[2], "u32" if parity else "u64")
    suspends = instruction.opcode[1] == "try_wait"

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        places = shared_addresses(m, at(m, lanes), lanes)
        note(m, places, lanes, "update")
        tokens = m.pick(token(m), lanes).astype(np.int64)
        done = np.zeros(m.size, bool)
        for barrier, which in groups(m, places, lanes):
            if not barrier.over(tokens[which], parity).all():
                barrier.settle(m)  # delay copies as long as no thread's progress depends on them
            over = barrier.over(tokens[which], parity)
            done[lanes[which]] = over
            m.clocks.learn(np.unique(lanes[which[over]] >> 5), barrier.visible)
            if suspends and not over.all():
                mask = np.zeros(m.size, bool)
                mask[lanes[which[~over]]] = True
                barrier.waiting[m.pc] = barrier.waiting[m.pc] | mask if m.pc in barrier.waiting else mask
        if not suspends or done[lanes].all():
            target(m, done)
            return None
        if not done.any():
            return AWAY
        m.activate(done)
        target(m, done)
        return None

    return step
