"""``wgmma`` (PTX ISA 9.7.15): warpgroup-level matmul from shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.decoder import AWAY, Decoder, Step, Value, builds
from mlc_compiler.sim.errors import Fault
from mlc_compiler.sim.loads import items
from mlc_compiler.sim.matrix import ELEMENTS, accumulated, fragment_a, fragment_c, registers_of
from mlc_compiler.sim.program import Immediate, Instruction, Operand, Register, Vector
from mlc_compiler.sim.proxies import check_fenced
from mlc_compiler.sim.tensor_map import swizzled
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
KEY = "wgmma"
LANES = 128
SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}
DEPTH_BYTES = 32  # bytes of K per instruction


@dataclass(frozen=True)
class Descriptor:
    """A matrix descriptor (PTX ISA 9.7.15.5.1), in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        field = lambda low: ((bits >> low) & 0x3FFF) << 4  # noqa: E731
        return cls(field(0), field(16), field(32), SWIZZLES[bits >> 62])

    def rows_of(self, rows: int) -> Array:
        """The addresses of the two 16-byte halves of each 32-byte row, [rows, 2]; K is contiguous."""
        row, half = np.arange(rows)[:, None], np.arange(2)
        pitch = self.swizzle or 16
        across = half * (16 if self.swizzle else self.leading)
        return swizzled(self.start + row // 8 * self.stride + row % 8 * pitch + across, self.swizzle)

    def columns_of(self, rows: int) -> Array:
        """The addresses of 8 contiguous elements along M or N, for 16 positions along K: [16, rows // 8]."""
        depth, eight = np.arange(16)[:, None], np.arange(rows // 8)
        chunks = (self.swizzle or 16) // 16
        outer, inner = (self.leading, self.stride) if self.swizzle else (self.stride, self.leading)
        place = depth // 8 * inner + depth % 8 * chunks * 16 + eight % chunks * 16 + eight // chunks * outer
        return swizzled(self.start + place, self.swizzle)


@dataclass(frozen=True)
class Flight:
    """An instruction in flight. reads: addresses and lanes of its reads, recorded again when it completes."""

    group: Array  # commit group by lane
    lanes: Array
    reads: tuple[tuple[Array, Array], ...]
    registers: frozenset[int]


class Flights:
    """The ``wgmma`` instructions in flight."""

    def __init__(self, m: Threads):
        self.committed = np.zeros(m.size, np.int64)
        self.fenced = np.zeros(m.size, bool)  # lanes that have executed wgmma.fence
        self.flying: list[Flight] = []

    def finish(self, m: Threads, keep: int) -> None:
        """Complete all but the last ``keep`` groups of the active lanes, which read shared memory until now."""
        active, left = m.active(), []
        for flight in self.flying:
            done = active[flight.lanes[0]] and flight.group[0] < self.committed[flight.lanes[0]] - keep
            if not done:
                left.append(flight)
                continue
            for addresses, lanes in flight.reads:
                for part in access.parts(m, "shared", addresses, lanes, 16, store=False, counted=False):
                    access.note(m, part, 16, "read")
        self.flying = left
        still = frozenset[int]().union(*(flight.registers for flight in left))
        m.held = {index: mask for index, mask in m.held.items() if index in still or not (mask & active).any()}

    def stuck(self, m: Threads) -> Fault | None:
        return None


def flights_of(m: Threads) -> Flights:
    if KEY not in m.devices:
        m.devices[KEY] = Flights(m)
    found: Flights = m.devices[KEY]
    return found


@builds("wgmma", control=True)
def wgmma(instruction: Instruction, decoder: Decoder) -> Step:
    match instruction.opcode[1]:
        case "fence":
            return _fence
        case "commit_group":
            return _commit
        case "wait_group":
            return _wait(instruction)
        case "mma_async" if not instruction.has("sp"):
            return _multiply(instruction, decoder)
    raise decoder.refuse(instruction)


def _fence(m: Threads) -> None:
    flights_of(m).fenced[m.lanes()] = True


def _commit(m: Threads) -> None:
    flights_of(m).committed[m.lanes()] += 1


def _wait(instruction: Instruction) -> Step:
    (number,) = instruction.operands
    assert isinstance(number, Immediate)
    keep = number.value
    return lambda m: flights_of(m).finish(m, keep)


def _signs(operands: list[Operand], decoder: Decoder, instruction: Instruction) -> list[int]:
    """The immediates after the predicate: signs of A and B, then whether they are transposed."""
    values = [operand.value for operand in operands if isinstance(operand, Immediate)]
    if len(values) != len(operands):
        raise decoder.refuse(instruction)
    return values


def _multiply(instruction: Instruction, decoder: Decoder) -> Step:
    """``wgmma.mma_async.sync.aligned.m64nNkK.D.A.B d, a, b, scale-d, signs, transpositions``."""
    shape = next(part for part in instruction.opcode if part.startswith("m64n"))
    columns = int(shape[4:].split("k")[0])
    d_kind, a_kind, b_kind = instruction.opcode[-3:]
    if a_kind not in ELEMENTS or b_kind not in ELEMENTS or d_kind not in ("f32", "f16", "s32"):
        raise decoder.refuse(instruction)
    target, a, b, *rest = instruction.operands
    keep_sums, immediates = decoder.predicate(rest[0]), _signs(rest[1:], decoder, instruction)
    sign_a, sign_b, *transposed = [*immediates, *(1, 1)[len(immediates) :]]
    transpose_a, transpose_b = [0] * (2 - len(transposed)) + transposed
    left = (
        _from_registers(a, a_kind, decoder)
        if isinstance(a, Vector)
        else _from_shared(a, a_kind, 64, bool(transpose_a), decoder)
    )
    right = _from_shared(b, b_kind, columns, bool(transpose_b), decoder)
    words = [decoder.source(item, "u32") for item in items(target)]
    stores = [decoder.destination(item) for item in items(target)]
    registers = frozenset(item.index for item in items(target) if isinstance(item, Register))
    layout, accumulator = fragment_c(columns), {"f32": "f4", "s32": "i4", "f16": "f2"}[d_kind]
    decoder.accesses("shared", 16)

    def step(m: Threads) -> int | None:
        if not _whole_groups(m):
            return AWAY
        groups = np.flatnonzero(m.active().reshape(-1, LANES)[:, 0])
        if not flights_of(m).fenced[groups * LANES].all():
            raise Fault("missing wgmma.fence before the first wgmma.mma_async", int(groups[0]) * LANES)
        matrix_a, reads_a = left(m, groups)
        matrix_b, reads_b = right(m, groups)
        product = (sign_a * sign_b) * (matrix_a @ matrix_b.swapaxes(1, 2))
        sums = layout.assemble(registers_of(m, words, accumulator)).reshape(-1, 64, columns)[groups]
        kept = m.by_warp(keep_sums(m))[groups * 4, 0]
        total = accumulated(product, np.where(kept[:, None, None], sums, sums.dtype.type(0)), False)
        _write_sums(m, groups, layout.split(total.reshape(-1, 16, columns)), stores)
        _take_off(m, groups, (*reads_a, *reads_b), registers)
        return None

    return step


def _write_sums(m: Threads, groups: Array, fragments: Array, stores: list[Any]) -> None:
    """Write ``fragments`` [active warps, 32, n] to the accumulator registers."""
    words = np.ascontiguousarray(fragments).view(np.uint32)
    warps = (groups[:, None] * 4 + np.arange(4)).reshape(-1)
    for column, store in enumerate(stores):
        every = np.zeros((m.warps, 32), np.uint32)
        every[warps] = words[:, :, column]
        store(m, every.reshape(-1))


def _take_off(m: Threads, groups: Array, reads: tuple[tuple[Array, Array], ...], registers: frozenset[int]) -> None:
    flights = flights_of(m)
    active = m.active()
    for group in groups:
        lanes = np.arange(group * LANES, (group + 1) * LANES)
        own = tuple((addresses[at // LANES == group], at[at // LANES == group]) for addresses, at in reads)
        flights.flying.append(Flight(flights.committed[lanes], lanes, own, registers))
    for index in registers:
        m.held[index] = m.held[index] | active if index in m.held else active


def _whole_groups(m: Threads) -> bool:
    """Whether all 128 threads of each active warpgroup have arrived; threads that wait for others are parked."""
    if m.warps_per_block % 4:
        raise Fault("wgmma needs blocks of whole warpgroups of 128 threads", int(m.lanes()[0]))
    if m.mask is None:
        return True
    if not m.gather(np.ones(m.size, bool), LANES):
        return False
    active = m.active().reshape(-1, LANES)
    if (active.any(axis=1) & ~active.all(axis=1)).any():
        raise Fault("wgmma needs all 128 threads of a warpgroup; some have exited", int(m.lanes()[0]))
    return True


Matrix = Callable[[Threads, Array], tuple[Array, tuple[tuple[Array, Array], ...]]]  # numbers [groups, rows, K], reads


def _from_registers(operand: Operand, kind: str, decoder: Decoder) -> Matrix:
    """Load A from registers: each warp holds 16 rows, as for ``mma.sync``."""
    element = ELEMENTS[kind]
    itemsize = np.dtype(element.raw).itemsize
    layout = fragment_a(DEPTH_BYTES // itemsize, 4 // itemsize)
    sources: list[Value] = [decoder.source(item, "u32") for item in items(operand)]

    def matrix(m: Threads, groups: Array) -> tuple[Array, tuple[tuple[Array, Array], ...]]:
        numbers = element.numbers(registers_of(m, sources, element.raw))
        return layout.assemble(numbers).reshape(-1, 64, DEPTH_BYTES // itemsize)[groups], ()

    return matrix


def _from_shared(operand: Operand, kind: str, rows: int, transposed: bool, decoder: Decoder) -> Matrix:
    """Load A or B from shared memory by its descriptor: ``rows`` of M or N."""
    element = ELEMENTS[kind]
    source = decoder.source(operand, "u64")
    raw = np.dtype(element.raw)

    def matrix(m: Threads, groups: Array) -> tuple[Array, tuple[tuple[Array, Array], ...]]:
        bits = np.broadcast_to(source(m), m.size).reshape(-1, LANES)[groups]
        if (bits != bits[:, :1]).any():
            raise Fault("the threads of a warpgroup have different matrix descriptors", int(groups[0]) * LANES)
        descriptors = [Descriptor.decode(int(row[0])) for row in bits]
        places = np.stack([d.columns_of(rows) if transposed else d.rows_of(rows) for d in descriptors])
        flat = places.reshape(-1)
        per_group = flat.size // len(groups)
        lanes = np.repeat(groups * LANES, per_group) + np.arange(flat.size) % per_group % LANES
        for part in access.parts(m, "shared", flat, lanes, 16, store=False, counted=False):
            check_fenced(m, part, 16)
        chunks = access.load(m, "shared", flat, lanes, 16, raw, counted=False).reshape(
            *places.shape, 16 // raw.itemsize
        )
        if transposed:
            numbers = element.numbers(chunks).reshape(len(groups), 16, rows).swapaxes(1, 2)
        else:
            numbers = element.numbers(chunks).reshape(len(groups), rows, DEPTH_BYTES // raw.itemsize)
        return numbers, ((flat, lanes),)

    return matrix
