"""Runs a kernel: blocks in groups, lanes with the lowest program counter first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import numpy as np

from mlc_compiler.sim.barriers import KEY as BARRIERS
from mlc_compiler.sim.counts import Counts
from mlc_compiler.sim.decoder import Decoded, Decoder
from mlc_compiler.sim.errors import Fault, SimulationError
from mlc_compiler.sim.mbarrier import KEY as MBARRIERS
from mlc_compiler.sim.memory import Memory, Storage
from mlc_compiler.sim.program import Kernel, registers_in
from mlc_compiler.sim.threads import Dim3, Launch, Threads

LANES_AT_ONCE = 4096
LARGEST_BLOCK = 1024
PATIENCE = 10_000  # instructions that the lanes with the lowest program counter execute before waiting lanes get a turn
LIMIT = 3_000_000  # instructions per group of blocks after which a loop counts as endless


def run(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[int | float | bytes | np.generic],
    memory: Memory,
    shared_bytes: int = 0,
    races: bool = True,
    cooperative: bool = False,
    blocks: Iterable[int] | None = None,
) -> Counts:
    """Execute one launch and return its statistics.

    grid, block: up to three sizes; args: one value per parameter: device addresses and integers, floats (of the
    parameter's size), numpy scalars, or the bytes of a structure; shared_bytes: dynamic shared memory.
    races: whether to detect data races. cooperative: whether blocks wait for each other, so that all must run together.
    blocks: indices of the blocks to run, x being the innermost axis; None runs all.
    Raises SimulationError for undefined behaviour, deadlocks and unsimulated instructions.
    """
    decoded = decode(kernel)
    shape, threads = _dim3(grid), _dim3(block)
    _check_launch(kernel, threads)
    parameters = _parameters(kernel, decoded, args)
    shared = decoded.layout.shared_bytes + shared_bytes
    counts = Counts()
    launch = Launch(kernel, decoded.layout, memory, shape, threads, parameters, shared, races, counts)
    with np.errstate(all="ignore"):
        for first, count in _groups(launch, cooperative, blocks):
            _run_blocks(decoded, Threads(launch, first, count))
    for _, shadow in launch.shadows.values():
        counts.distinct_bytes_read += shadow.bytes_read
        counts.distinct_bytes_written += shadow.bytes_written
    return counts


def _groups(launch: Launch, cooperative: bool, blocks: Iterable[int] | None) -> Iterator[tuple[int, int]]:
    """The first block and the number of blocks of each group of blocks that runs together."""
    if blocks is not None:
        yield from ((block, 1) for block in blocks)
        return
    total = int(np.prod(launch.grid))
    lanes_per_block = -(-int(np.prod(launch.block)) // 32) * 32
    at_once = total if cooperative else max(LANES_AT_ONCE // lanes_per_block, 1)
    yield from ((first, min(at_once, total - first)) for first in range(0, total, at_once))


def decode(kernel: Kernel) -> Decoded:
    """Decode a kernel, memoized in ``kernel.decoded``. Raises SimulationError for features that are not simulated."""
    if "steps" not in kernel.decoded:
        kernel.decoded["steps"] = Decoder(kernel).decode()
    return cast(Decoded, kernel.decoded["steps"])


def _dim3(sizes: Sequence[int]) -> Dim3:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def _check_launch(kernel: Kernel, block: Dim3) -> None:
    threads = int(np.prod(block))
    allowed = int(np.prod(kernel.maxntid)) if kernel.maxntid else LARGEST_BLOCK
    if not 0 < threads <= allowed:
        raise SimulationError(
            f"a block of {threads} threads; the kernel allows 1 to {allowed}", where=[f"kernel {kernel.name}"]
        )


def _parameters(kernel: Kernel, decoded: Decoded, args: Sequence[int | float | bytes | np.generic]) -> Storage:
    """The parameter bytes in the layout that the kernel addresses."""
    if len(args) != len(kernel.parameters):
        raise SimulationError(f"kernel {kernel.name} got {len(args)} arguments; expected {len(kernel.parameters)}")
    size = decoded.layout.parameter_bytes
    data = np.zeros(-(-size // 32) * 32, np.uint8)
    for parameter, value in zip(kernel.parameters, args):
        start = decoded.layout.offsets[parameter.name]
        encoded = _encoded(value, parameter.nbytes)
        if len(encoded) != parameter.nbytes:
            raise SimulationError(
                f"argument {parameter.name} has {len(encoded)} bytes; expected {parameter.nbytes}",
                where=[f"kernel {kernel.name}"],
            )
        data[start : start + parameter.nbytes] = np.frombuffer(encoded, np.uint8)
    return Storage("parameter", data, None)


def _encoded(value: int | float | bytes | np.generic, nbytes: int) -> bytes:
    match value:
        case bytes():
            return value
        case np.generic():
            return value.tobytes()
        case int():
            return (value % (1 << 8 * nbytes)).to_bytes(nbytes, "little")
    return np.array(value, f"f{nbytes}").tobytes()


def _run_blocks(decoded: Decoded, m: Threads) -> None:
    executed = [0] * len(decoded.steps)
    m.push(0, m.alive)
    try:
        _execute(decoded, m, executed)
        _check_finished(m)
    except Fault as fault:
        raise _located(m, fault) from None
    by_opcode = Counter[str]()
    for instruction, times in zip(m.launch.kernel.code, executed):
        by_opcode[instruction.opcode[0]] += times
    m.counts.warp_instructions += sum(executed)
    m.counts.by_opcode.update(by_opcode)


def _execute(decoded: Decoded, m: Threads, executed: list[int]) -> None:
    """Execute until no lane can run. Lanes that reach the program counter of others join them."""
    steps = decoded.steps
    budget = LIMIT
    while m.select():
        pc, limit, patience = m.pc, m.limit, PATIENCE if m.pending else LIMIT
        while pc < limit and patience:
            m.pc = pc
            executed[pc] += m.executed_warps
            if m.held:
                _check_held(m)
            after = steps[pc](m)
            patience -= 1
            if after is None:
                pc += 1
            elif after >= 0:
                pc = after
            else:
                break
        else:
            m.push(pc, m.active())
            if not patience:
                m.yield_to_others(pc)
        budget -= 1
        if budget == 0 or (not patience and not m.pending.keys() - {pc}):
            raise Fault("the kernel does not end: its threads wait in a loop for what nobody does", int(m.lanes()[0]))


def _check_held(m: Threads) -> None:
    """Check that accumulators of asynchronous matmuls are only moved, not used, before they were waited for."""
    instruction = m.launch.kernel.code[m.pc]
    if instruction.opcode[0] == "wgmma":
        return
    target, *sources = instruction.operands or (None,)
    if instruction.opcode[0] in ("st", "red"):
        sources = list(instruction.operands)
    for index in registers_in(sources):
        if index not in m.held or not (m.held[index] & m.active()).any():
            continue
        if instruction.opcode[0] != "mov":
            raise Fault(
                "missing wgmma wait: an accumulator is read while its product is in flight",
                int(m.lanes()[0]),
                "put wgmma.wait_group before the read",
            )
        for moved in registers_in([target]):
            m.held[moved] = m.held[index]


def _check_finished(m: Threads) -> None:
    """Raise Fault when threads wait for threads that never arrive."""
    for kind in (BARRIERS, MBARRIERS):
        if kind in m.devices and (fault := m.devices[kind].stuck(m)):
            raise fault
    if m.parked:
        m.pc, mask = min(m.parked.items())
        lane = int(np.flatnonzero(mask)[0])
        raise Fault("a .sync instruction waits for threads of its warp that do not come", lane)
    for device in m.devices.values():
        if fault := device.stuck(m):
            raise fault


def _located(m: Threads, fault: Fault) -> SimulationError:
    kernel = m.launch.kernel
    instruction = kernel.code[min(m.pc, len(kernel.code) - 1)]
    where = [f"kernel {kernel.name}", f"{instruction.text} (line {instruction.line})"]
    if fault.lane is not None:
        where.append(m.thread_name(fault.lane))
    return SimulationError(fault.message, where=where, hint=fault.hint)
