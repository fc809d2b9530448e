"""Communication within a warp (PTX ISA 9.7.9.6, 9.7.13.8 to 9.7.13.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.barriers import member_lanes, synchronize_warps
from mlc_compiler.sim.decoder import AWAY, Decoder, Step, Store, Value, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.program import Instruction, Operand, Pair, Sink
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
Exchange = Callable[[Threads], None]


def together(members: Value, exchange: Exchange) -> Step:
    """A .sync instruction: the member lanes gather, exchange values, and are ordered with each other."""

    def step(m: Threads) -> int | None:
        if not m.gather(member_lanes(m, members(m))):
            return AWAY
        synchronize_warps(m)
        exchange(m)
        return None

    return step


def two_targets(operand: Operand, decoder: Decoder) -> tuple[Store, Store]:
    first, second = (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())
    return decoder.destination(first), decoder.destination(second)


@builds("shfl", control=True)
def shuffle(instruction: Instruction, decoder: Decoder) -> Step:
    """``shfl.sync.mode.b32 d|p, a, b, c, members``: c has the clamp in bits 0-4 and the segment mask in bits 8-12."""
    target, *rest = instruction.operands
    a, b, c, members = (decoder.source(operand, "u32") for operand in rest)
    value_to, valid_to = two_targets(target, decoder)
    mode = instruction.opcode[2]

    def exchange(m: Threads) -> None:
        values = m.by_warp(a(m))
        lane = np.arange(32, dtype=np.int64)
        shift, control = m.by_warp(b(m)).astype(np.int64) & 31, m.by_warp(c(m)).astype(np.int64)
        clamp, segment = control & 31, (control >> 8) & 31
        last = (lane & segment) | (clamp & ~segment)
        first = lane & segment
        wanted, valid = _sources(mode, lane, shift, first, last, segment)
        chosen = np.where(valid, wanted, lane)
        active = m.active().reshape(-1, 32)
        silent = active & ~np.take_along_axis(active, chosen, axis=1)
        if silent.any():
            at = int(np.flatnonzero(silent.reshape(-1))[0])
            raise Fault(f"shfl reads from lane {int(chosen.reshape(-1)[at])}, which does not take part", at)
        value_to(m, np.ascontiguousarray(np.take_along_axis(values, chosen, axis=1)).reshape(-1))
        valid_to(m, np.broadcast_to(valid, chosen.shape).reshape(-1))

    return together(members, exchange)


def _sources(mode: str, lane: Array, shift: Array, first: Array, last: Array, segment: Array) -> tuple[Array, Array]:
    """The lane that each lane reads, and whether it is within the segment."""
    if mode == "up":
        return lane - shift, lane - shift >= last
    if mode == "down":
        return lane + shift, lane + shift <= last
    if mode == "bfly":
        return lane ^ shift, (lane ^ shift) <= last
    wanted = first | (shift & ~segment)
    return wanted, wanted <= last


def ballots(flags: Array) -> Array:
    """Pack flags [warps, 32] to uint32 masks [warps]."""
    return (flags.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32)


@builds("vote", control=True)
def vote(instruction: Instruction, decoder: Decoder) -> Step:
    target, flag, member_mask = instruction.operands
    predicate, members = decoder.predicate(flag), decoder.source(member_mask, "u32")
    destination = decoder.destination(target)
    mode = instruction.opcode[2]

    def exchange(m: Threads) -> None:
        active = m.active().reshape(-1, 32)
        flags = m.by_warp(predicate(m))
        yes, no = (active & flags), (active & ~flags)
        results = {
            "ballot": lambda: ballots(yes),
            "all": lambda: ~no.any(axis=1),
            "any": lambda: yes.any(axis=1),
            "uni": lambda: ~(no.any(axis=1) & yes.any(axis=1)),
        }
        destination(m, np.repeat(results[mode](), 32))

    return together(members, exchange)


@builds("match", control=True)
def match(instruction: Instruction, decoder: Decoder) -> Step:
    """``match.any`` returns the lanes with an equal value, ``match.all`` all members or 0."""
    target, value, member_mask = instruction.operands
    source = decoder.source(value, instruction.type.replace("b", "u"))
    mask_to, same_to = two_targets(target, decoder)

    def exchange(m: Threads) -> None:
        active = m.active().reshape(-1, 32)
        values = m.by_warp(source(m))
        equal = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        masks = ballots(equal.reshape(-1, 32)).reshape(-1, 32)
        if instruction.has("all"):
            same = masks == ballots(active)[:, None]
            same_to(m, same.reshape(-1))
            masks = np.where(same, masks, np.uint32(0))
        mask_to(m, np.ascontiguousarray(masks).reshape(-1))

    return together(decoder.source(member_mask, "u32"), exchange)


@builds("redux", control=True)
def reduce(instruction: Instruction, decoder: Decoder) -> Step:
    target, value, member_mask = instruction.operands
    kind = instruction.type.replace("b", "u")
    if kind not in ("u32", "s32"):
        raise decoder.refuse(instruction)
    source, destination = decoder.source(value, kind), decoder.destination(target)
    operations: dict[str, tuple[Any, int]] = {
        "add": (np.add, 0),
        "min": (np.minimum, 2**32 - 1 if kind == "u32" else 2**31 - 1),
        "max": (np.maximum, 0 if kind == "u32" else -(2**31)),
        "and": (np.bitwise_and, 2**32 - 1 if kind == "u32" else -1),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }
    operation, neutral = operations[instruction.opcode[2]]

    def exchange(m: Threads) -> None:
        values = m.by_warp(source(m))
        used = np.where(m.active().reshape(-1, 32), values, values.dtype.type(neutral))
        destination(m, np.repeat(operation.reduce(used, axis=1, dtype=values.dtype), 32))

    return together(decoder.source(member_mask, "u32"), exchange)


@builds("activemask")
def active_mask(instruction: Instruction, decoder: Decoder) -> Step:
    destination = decoder.destination(instruction.operands[0])
    return lambda m: destination(m, np.repeat(ballots(m.active().reshape(-1, 32)), 32))


@builds("elect", control=True)
def elect(instruction: Instruction, decoder: Decoder) -> Step:
    """``elect.sync d|p, members``: elects the lowest active lane."""
    target, member_mask = instruction.operands
    lane_to, leader_to = two_targets(target, decoder)

    def exchange(m: Threads) -> None:
        leader = np.repeat(m.active().reshape(-1, 32).argmax(axis=1), 32)
        lane_to(m, leader.astype(np.uint32))
        leader_to(m, leader == (m.everyone & 31))

    return together(decoder.source(member_mask, "u32"), exchange)
