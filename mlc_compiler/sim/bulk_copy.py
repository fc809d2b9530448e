"""``cp.async.bulk`` (PTX ISA 9.7.9.25.4, 9.7.9.26): bulk copies, each issued by a single thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.decoder import Decoder, Step
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.loads import addresses
from mlc_compiler.sim.mbarrier import Delivery, deliver, shared_addresses
from mlc_compiler.sim.memory import PENDING
from mlc_compiler.sim.program import Address, Immediate, Instruction
from mlc_compiler.sim.proxies import check_fenced
from mlc_compiler.sim.tensor_map import Box, read_tensor_map
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
KEY = "bulk stores"
UNIT = 16  # bytes; addresses and sizes are multiples of it
Plan = Callable[[Threads, int], Box]  # the copies of one lane


@dataclass(frozen=True)
class BulkStore:
    """A bulk copy from shared to global memory; its source must not change until it was waited for."""

    lane: int
    group: int
    box: Box

    def perform(self, m: Threads) -> None:
        box = self.box
        lanes = np.full(len(box.shared), self.lane)
        data = access.load(m, "shared", box.shared, lanes, box.width, np.dtype("u1"), counted=False)
        inside = box.tensor >= 0
        if inside.any():
            access.store(m, "global", box.tensor[inside], lanes[inside], box.width, data[inside])


class BulkStores:
    """The bulk stores in flight; they are performed as late as their thread allows."""

    def __init__(self, m: Threads):
        self.committed = np.zeros(m.size, np.int64)
        self.flying: list[BulkStore] = []

    def finish(self, m: Threads, lanes: Array, keep: int) -> None:
        left = []
        for item in self.flying:
            if item.lane in lanes and item.group < self.committed[item.lane] - keep:
                item.perform(m)
            else:
                left.append(item)
        self.flying = left

    def stuck(self, m: Threads) -> Fault | None:
        if not self.flying:
            return None
        return Fault(
            "a bulk store from shared memory was not waited for: the block may end before it is read",
            self.flying[0].lane,
            "put cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 before the end",
        )


def stores_of(m: Threads) -> BulkStores:
    if KEY not in m.devices:
        m.devices[KEY] = BulkStores(m)
    found: BulkStores = m.devices[KEY]
    return found


def bulk_copy(instruction: Instruction, decoder: Decoder) -> Step:
    """Decode all forms of ``cp.async.bulk``."""
    if instruction.has("commit_group"):
        return _commit
    if instruction.has("wait_group"):
        return _wait(instruction)
    if instruction.has("prefetch"):
        return _prefetch(instruction, decoder)
    if instruction.opcode[1] == "reduce" or any("multicast" in part or part == "im2col" for part in instruction.opcode):
        raise decoder.refuse(instruction)
    tensor = instruction.has("tensor")
    target = next(part for part in instruction.opcode if part.startswith(("shared", "global")))
    to_shared = target.startswith("shared")
    decoder.accesses("generic", 1 if tensor else UNIT)
    shared, other = (0, 1) if to_shared else (1, 0)
    plan = (_tensor_plan if tensor else _plain_plan)(instruction, decoder, shared, other)
    return _load(plan, instruction, decoder) if to_shared else _store(plan)


def _commit(m: Threads) -> None:
    stores_of(m).committed[m.lanes()] += 1


def _wait(instruction: Instruction) -> Step:
    (number,) = instruction.operands
    assert isinstance(number, Immediate)
    keep = number.value
    return lambda m: stores_of(m).finish(m, m.lanes(), keep)


def _prefetch(instruction: Instruction, decoder: Decoder) -> Step:
    """Prefetch to the L2 cache: counted, without other effect; prefetches of a tensor's box are ignored."""
    if instruction.has("tensor"):
        return lambda m: None
    at, size = addresses(instruction.operands[0], decoder), decoder.source(instruction.operands[1], "u32")

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        sizes = m.pick(size(m), lanes).astype(np.int64)
        for lane, start, nbytes in zip(lanes.tolist(), at(m, lanes).tolist(), sizes.tolist()):
            if (start | nbytes) % UNIT:
                raise Fault(f"a prefetch of {nbytes} bytes at {start:#x}; expected a multiple of {UNIT} bytes", lane)
            access.allocation(m, start, nbytes, lane)
            m.counts.prefetched_bytes += nbytes
        return None

    return step


def _plain_plan(instruction: Instruction, decoder: Decoder, shared: int, other: int) -> Plan:
    """Plan a contiguous copy; ``shared`` and ``other`` are the operand positions of the two addresses."""
    at = addresses(instruction.operands[shared], decoder)
    other_at = addresses(instruction.operands[other], decoder)
    size = decoder.source(instruction.operands[2], "u32")

    def plan(m: Threads, lane: int) -> Box:
        lanes = np.array([lane])
        nbytes = int(_one(m, size(m), lane))
        if nbytes % UNIT:
            raise Fault(f"cp.async.bulk of {nbytes} bytes; expected a multiple of 16", lane)
        steps = np.arange(0, nbytes, UNIT)
        return Box(shared_addresses(m, at_lane(m, at, lane), lanes) + steps, at_lane(m, other_at, lane) + steps, UNIT)

    return plan


def _one(m: Threads, values: Array, lane: int) -> Any:
    return values[0] if len(values) == 1 else values[lane]


def at_lane(m: Threads, at: Any, lane: int) -> Array:
    """The address of one lane, [1]."""
    lanes = m.lanes()
    found: Array = at(m, lanes)[np.searchsorted(lanes, lane)][None]
    return found


def _tensor_plan(instruction: Instruction, decoder: Decoder, shared: int, other: int) -> Plan:
    """Plan the copy of a tensor's box; operand ``other`` names its tensor map and coordinates."""
    map_operand = instruction.operands[other]
    assert isinstance(map_operand, Address)
    at = addresses(instruction.operands[shared], decoder)
    map_at = addresses(Address(map_operand.base, map_operand.offset), decoder)
    coordinates = [decoder.source(item, "s32") for item in map_operand.coordinates]

    def plan(m: Threads, lane: int) -> Box:
        tensor = read_tensor_map(m, at_lane(m, map_at, lane), lane)
        start = [int(_one(m, c(m), lane)) for c in coordinates]
        base = shared_addresses(m, at_lane(m, at, lane), np.array([lane]))
        return tensor.box_at(int(base[0]), start, lane)

    return plan


def _load(plan: Plan, instruction: Instruction, decoder: Decoder) -> Step:
    """Bulk load to shared memory, whose bytes count towards an mbarrier."""
    if not any("mbarrier" in part for part in instruction.opcode):
        raise decoder.refuse(instruction)
    object_at = addresses(instruction.operands[2 if instruction.has("tensor") else 3], decoder)

    def step(m: Threads) -> int | None:
        for lane in m.lanes().tolist():
            box = plan(m, lane)
            lanes = np.full(len(box.shared), lane)
            data = np.zeros((len(lanes), box.width), np.uint8)
            inside = box.tensor >= 0
            if inside.any():
                data[inside] = access.load(m, "global", box.tensor[inside], lanes[inside], box.width, np.dtype("u1"))
            place = int(shared_addresses(m, at_lane(m, object_at, lane), np.array([lane]))[0])
            for part in access.parts(m, "shared", box.shared, lanes, box.width, store=True, counted=False):
                access.check_not_pending(part, box.width)
                access.note(m, part, box.width, "write")
                if part.shadow is not None:
                    part.shadow.mark_copied(part.offsets, box.width)
                part.storage.mark(part.offsets, box.width, PENDING)
                deliver(m, place, lane, Delivery(part.offsets, data))
        return None

    return step


def _store(plan: Plan) -> Step:
    def step(m: Threads) -> int | None:
        stores = stores_of(m)
        for lane in m.lanes().tolist():
            item = BulkStore(lane, int(stores.committed[lane]), plan(m, lane))
            lanes = np.full(len(item.box.shared), lane)
            for part in access.parts(m, "shared", item.box.shared, lanes, item.box.width, store=False, counted=False):
                check_fenced(m, part, item.box.width)
            stores.flying.append(item)
        return None

    return step
