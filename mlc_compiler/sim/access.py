"""Memory accesses: state space of an address, bounds and alignment checks, race detection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.dependent_launch import check_access
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.memory import PENDING, Storage
from mlc_compiler.sim.races import BLOCK_SHIFT, THREAD_MASK, Conflict, Shadow
from mlc_compiler.sim.threads import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Threads

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """The accesses of one instruction to one storage. which: their positions in the instruction, None for all."""

    storage: Storage
    shadow: Shadow | None
    offsets: Array
    lanes: Array
    which: Array | None


def load(
    m: Threads,
    space: str,
    addresses: Array,
    lanes: Array,
    width: int,
    dtype: np.dtype[Any],
    strong: bool = False,
    counted: bool = True,
) -> Array:
    """Load elements [n, width // itemsize]; ``addresses`` [n] are int64, in the window of their space.

    strong: volatile, relaxed or stronger, so that it does not race with atomics. counted: whether the access is an
    instruction of threads, for which sectors and bank conflicts are counted.
    """
    out: Array | None = None
    for part in parts(m, space, addresses, lanes, width, store=False, counted=counted):
        values = part.storage.load(part.offsets, width, dtype, part.lanes)
        note(m, part, width, "update" if strong else "read")
        if part.which is None:
            return values
        if out is None:
            out = np.empty((len(lanes), width // dtype.itemsize), dtype)
        out[part.which] = values
    assert out is not None
    return out


def store(
    m: Threads,
    space: str,
    addresses: Array,
    lanes: Array,
    width: int,
    values: Array,
    strong: bool = False,
    counted: bool = True,
) -> None:
    """Store ``values`` [n, width // itemsize]."""
    for part in parts(m, space, addresses, lanes, width, store=True, counted=counted):
        check_not_pending(part, width)
        note(m, part, width, "update" if strong else "write")
        part.storage.store(part.offsets, width, values if part.which is None else values[part.which])


def note(m: Threads, part: Part, width: int, kind: str) -> None:
    """Check for races with a "read", "write" or (atomic) "update", and record the access."""
    if part.shadow is None:
        return
    who = m.accessors(part.lanes)
    try:
        getattr(part.shadow, kind)(who, part.offsets, width)
    except Conflict as conflict:
        raise _race(m, part, conflict) from None


def _race(m: Threads, part: Part, conflict: Conflict) -> Fault:
    lane = int(part.lanes[conflict.position])
    block = (conflict.code >> BLOCK_SHIFT) - 1
    other = m.name_of(block, conflict.code & THREAD_MASK)
    address = part.storage.start + int(part.offsets[conflict.position])
    if part.storage is m.shared:
        address -= int(m.lane_block[lane]) * m.shared_stride
    between = "the same barrier interval" if block == int(m.block_number[lane]) else "one launch"
    return Fault(
        f"data race at {part.storage.name} address {address:#x}: {m.thread_name(lane)} and {other} in {between}: "
        f"{conflict.kind}",
        lane,
        "put a barrier between the two accesses" if "interval" in between else "blocks of a launch are not ordered",
    )


def check_not_pending(part: Part, width: int) -> None:
    state = part.storage.state
    if state is None:
        return
    word = min(width, 8)
    if (state.view(f"u{word}").reshape(-1, width // word)[part.offsets // width] & PENDING).any():
        pending = (state[part.offsets[:, None] + np.arange(width)] == PENDING).any(axis=1)
        lane = int(part.lanes[int(pending.argmax())])
        raise Fault("store to bytes that an asynchronous copy is still going to write", lane)


def parts(
    m: Threads, space: str, addresses: Array, lanes: Array, width: int, store: bool, counted: bool = True
) -> Iterator[Part]:
    """Check bounds and alignment of accesses, count them, and yield them by storage."""
    _check_aligned(addresses, lanes, width)
    match space:
        case "shared":
            yield _shared(m, addresses, lanes, width, None, counted)
        case "local":
            yield _local(m, addresses, lanes, width, None)
        case "param":
            yield _parameter(m, addresses, lanes, width, None)
        case "global":
            if counted:
                m.counts.global_access(addresses, lanes >> 5, width, store)
            yield from _allocated(m, addresses, lanes, width, None, store)
        case "const":
            yield from _allocated(m, addresses, lanes, width, None, store)
        case _:
            yield from _generic(m, addresses, lanes, width, store, counted)


def _check_aligned(addresses: Array, lanes: Array, width: int) -> None:
    wrong = addresses & (width - 1)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise Fault(f"misaligned access: {width} bytes at address {int(addresses[at]):#x}", int(lanes[at]))


def _bounded(addresses: Array, lanes: Array, width: int, size: int, name: str) -> None:
    if len(addresses) and (int(addresses.min()) < 0 or int(addresses.max()) + width > size):
        at = int(np.flatnonzero((addresses < 0) | (addresses + width > size))[0])
        raise Fault(
            f"out of bounds: {width} bytes at {name} address {int(addresses[at]):#x}; the block has {size} bytes",
            int(lanes[at]),
        )


def _shared(m: Threads, addresses: Array, lanes: Array, width: int, which: Array | None, counted: bool) -> Part:
    _bounded(addresses, lanes, width, m.launch.shared_bytes, "shared")
    if counted:
        m.counts.shared_access(addresses, lanes, width)
    offsets = addresses + m.lane_block[lanes] * m.shared_stride
    return Part(m.shared, m.shared_shadow, offsets, lanes, which)


def _local(m: Threads, addresses: Array, lanes: Array, width: int, which: Array | None) -> Part:
    _bounded(addresses, lanes, width, m.launch.layout.local_bytes, "local")
    return Part(m.local, None, addresses + lanes * m.local_stride, lanes, which)


def _parameter(m: Threads, addresses: Array, lanes: Array, width: int, which: Array | None) -> Part:
    _bounded(addresses, lanes, width, m.launch.layout.parameter_bytes, "parameter")
    return Part(m.launch.parameters, None, addresses, lanes, which)


def _allocated(
    m: Threads, addresses: Array, lanes: Array, width: int, which: Array | None, store: bool
) -> Iterator[Part]:
    low, high = int(addresses.min()), int(addresses.max()) + width
    storage = m.memory.find(low)
    if storage is not None and low >= storage.low and high <= storage.high:
        yield _part_of(m, storage, addresses, lanes, width, which, store)
        return
    left = np.arange(len(addresses))
    while len(left):
        first = int(addresses[left[0]])
        storage = allocation(m, first, width, int(lanes[left[0]]))
        inside = (addresses[left] >= storage.low) & (addresses[left] + width <= storage.high)
        taken, left = left[inside], left[~inside]
        chosen = taken if which is None else which[taken]
        yield _part_of(m, storage, addresses[taken], lanes[taken], width, chosen, store)


def allocation(m: Threads, address: int, nbytes: int, lane: int) -> Storage:
    """The allocation of global memory that contains the bytes. Raises Fault when there is none."""
    storage = m.memory.find(address)
    if storage is None or address + nbytes > storage.high:
        raise _outside(m, address, nbytes, lane, storage)
    return storage


def _part_of(
    m: Threads, storage: Storage, addresses: Array, lanes: Array, width: int, which: Array | None, store: bool
) -> Part:
    """The part of an access that lies in one storage of global memory."""
    m.counts.accessed[storage.name] += len(addresses) * width
    offsets = addresses - storage.start
    check_access(m, storage, offsets, lanes, store)
    if store:
        storage.unsettle(offsets)
    return Part(storage, m.launch.shadow(storage), offsets, lanes, which)


def _outside(m: Threads, address: int, width: int, lane: int, storage: Storage | None) -> Fault:
    near = storage or m.memory.before(address)
    place = "no allocation lies below it"
    if near is not None:
        place = f"{near.name} has {near.high - near.low} bytes and begins {address - near.low} bytes before it"
    return Fault(f"out of bounds: {width} bytes at global address {address:#x}; {place}", lane)


def _generic(m: Threads, addresses: Array, lanes: Array, width: int, store: bool, counted: bool) -> Iterator[Part]:
    windows = addresses >> 56
    for window in np.unique(windows):
        which = np.flatnonzero(windows == window)
        offsets, chosen = addresses[which] & ((1 << 56) - 1), lanes[which]
        match int(window) << 56:
            case 0:
                if counted:
                    m.counts.global_access(offsets, chosen >> 5, width, store)
                yield from _allocated(m, offsets, chosen, width, which, store)
            case value if value == SHARED_WINDOW:
                yield _shared(m, offsets, chosen, width, which, counted)
            case value if value == LOCAL_WINDOW:
                yield _local(m, offsets, chosen, width, which)
            case value if value == PARAM_WINDOW:
                yield _parameter(m, offsets, chosen, width, which)
            case _:
                raise Fault(f"out of bounds: generic address {int(addresses[which[0]]):#x}", int(chosen[0]))
