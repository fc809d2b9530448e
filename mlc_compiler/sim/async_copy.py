"""``cp.async`` (PTX ISA 9.7.9.25.3): asynchronous copies, performed when their group is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.bulk_copy import bulk_copy
from mlc_compiler.sim.decoder import Decoder, Step, Value, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.loads import addresses
from mlc_compiler.sim.mbarrier import arrive, shared_addresses
from mlc_compiler.sim.memory import PENDING
from mlc_compiler.sim.program import Immediate, Instruction
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
KEY = "async copies"


@dataclass(frozen=True)
class Copy:
    """The copies of one instruction into shared memory, by lane, with the group of each."""

    lanes: Array
    offsets: Array  # into the shared storage of all blocks
    data: Array  # [n, bytes], as read when the copy was issued
    groups: Array

    def some(self, which: Array) -> Copy:
        return Copy(self.lanes[which], self.offsets[which], self.data[which], self.groups[which])


class Copies:
    """The asynchronous copies in flight."""

    def __init__(self, m: Threads):
        self.committed = np.zeros(m.size, np.int64)  # groups that each lane has closed
        self.flying: list[Copy] = []

    def finish(self, m: Threads, waiting: Array, last: Array) -> None:
        """Perform the copies of lanes in ``waiting`` whose groups precede ``last`` [lanes]."""
        left = []
        for copy in self.flying:
            done = waiting[copy.lanes] & (copy.groups < last[copy.lanes])
            if done.any():
                self._perform(m, copy.some(done))
            if not done.all():
                left.append(copy.some(~done))
        self.flying = left

    def _perform(self, m: Threads, copy: Copy) -> None:
        width = copy.data.shape[1]
        m.shared.store(copy.offsets, width, copy.data)
        part = access.Part(m.shared, m.shared_shadow, copy.offsets, copy.lanes, None)
        access.note(m, part, width, "write")

    def stuck(self, m: Threads) -> Fault | None:
        """Return None: copies that no thread waits for are no fault, because no thread can have read them."""
        return None


def copies_of(m: Threads) -> Copies:
    if KEY not in m.devices:
        m.devices[KEY] = Copies(m)
    copies: Copies = m.devices[KEY]
    return copies


@builds("cp")
def copy(instruction: Instruction, decoder: Decoder) -> Step:
    if instruction.has("bulk") or instruction.has("reduce"):
        return bulk_copy(instruction, decoder)
    if instruction.has("mbarrier"):
        return _arrive(instruction, decoder)
    if instruction.has("commit_group"):
        return _commit
    if instruction.has("wait_all"):
        return _wait_all
    if instruction.has("wait_group"):
        return _wait(instruction)
    return _issue(instruction, decoder)


def _commit(m: Threads) -> None:
    copies_of(m).committed[m.lanes()] += 1


def _wait_all(m: Threads) -> None:
    copies = copies_of(m)
    copies.finish(m, m.active(), copies.committed + 1)


def _wait(instruction: Instruction) -> Step:
    """``cp.async.wait_group``: all but the last n groups of each thread must be complete."""
    (number,) = instruction.operands
    assert isinstance(number, Immediate)
    count = number.value

    def step(m: Threads) -> int | None:
        copies = copies_of(m)
        copies.finish(m, m.active(), copies.committed - count)
        return None

    return step


def _arrive(instruction: Instruction, decoder: Decoder) -> Step:
    """``cp.async.mbarrier.arrive[.noinc]``: arrive when the thread's copies so far are complete."""
    decoder.accesses("shared", 8)
    at = addresses(instruction.operands[0], decoder)
    own_arrival = instruction.has("noinc")  # otherwise a later arrival raises the count

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        _wait_all(m)
        if own_arrival:
            once = np.ones(len(lanes), np.int64)
            arrive(m, shared_addresses(m, at(m, lanes), lanes), lanes, once, once * 0)
        return None

    return step


def _issue(instruction: Instruction, decoder: Decoder) -> Step:
    """``cp.async.{ca,cg}.shared.global [to], [from], size {, source size}``; bytes past the source size become 0."""
    to, source, size, *rest = instruction.operands
    rest = [operand for operand in rest if getattr(operand, "bits", 0) != 64 and not _is_policy(operand)]
    if not isinstance(size, Immediate):
        raise decoder.refuse(instruction)
    width = size.value
    decoder.accesses("shared", width)
    decoder.accesses("global", min(width, 4) if rest else width)
    to_at, from_at = addresses(to, decoder), addresses(source, decoder)
    used = decoder.source(rest[0], "u32") if rest else None

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        data = _fetch(m, from_at(m, lanes), lanes, width, used)
        copies = copies_of(m)
        for part in access.parts(m, "shared", to_at(m, lanes), lanes, width, store=True):
            access.check_not_pending(part, width)
            access.note(m, part, width, "write")
            part.storage.mark(part.offsets, width, PENDING)
            copies.flying.append(Copy(lanes, part.offsets, data, copies.committed[lanes]))
        return None

    return step


def _is_policy(operand: object) -> bool:
    return getattr(operand, "bits", 0) == 64


def _fetch(m: Threads, places: Array, lanes: Array, width: int, used: Value | None) -> Array:
    """Load bytes [n, width] from global memory; bytes beyond the source size are zero and not read."""
    byte = np.dtype("u1")
    if used is None:
        return access.load(m, "global", places, lanes, width, byte)
    sizes = m.pick(used(m), lanes)
    data = np.zeros((len(lanes), width), byte)
    for size in np.unique(sizes[sizes > 0]):
        which = np.flatnonzero(sizes == size)
        if size not in (4, 8, 16):
            raise Fault(
                f"cp.async with a source size of {size}; the simulator knows 0, 4, 8 and 16", int(lanes[which[0]])
            )
        data[which, :size] = access.load(m, "global", places[which], lanes[which], int(size), byte)
    return data
