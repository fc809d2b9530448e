"""``atom`` and ``red`` (PTX ISA 9.7.13.5 and 9.7.13.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.bfloat16 import bf16_to_f32, f32_to_bf16
from mlc_compiler.sim.block_order import note_strong
from mlc_compiler.sim.decoder import Decoder, Step, builds, numpy_type
from mlc_compiler.sim.elementwise import chosen
from mlc_compiler.sim.loads import addresses, items, scatter_to, space_of, vector_length
from mlc_compiler.sim.program import BITS, Instruction, Sink
from mlc_compiler.sim.threads import Threads

Array = npt.NDArray[Any]
Update = Callable[..., Array]  # old value and operands -> new value

OPERATIONS: dict[str, Update] = {
    "add": lambda old, x: old + x,
    "exch": lambda old, x: x,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "cas": lambda old, expected, x: chosen(x, old, old == expected),
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1).astype(old.dtype),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype),
}


def _packed(kind: str) -> Update:
    """Addition of f16, bf16 and pairs of them: ``old`` and ``x`` are [n, elements]."""
    if kind.startswith("f16"):
        return lambda old, x: (old.view(np.float16) + x.view(np.float16)).view(old.dtype)
    return lambda old, x: f32_to_bf16(bf16_to_f32(old.view("u2")) + bf16_to_f32(x.view("u2"))).view(old.dtype)


@builds("atom", "red")
def atomic(instruction: Instruction, decoder: Decoder) -> Step:
    """One atomic update per thread, in lane order."""
    operands = list(instruction.operands)
    result = operands.pop(0) if instruction.opcode[0] == "atom" else Sink()
    name = next((part for part in instruction.opcode if part in OPERATIONS), None)
    kind, count = instruction.type, vector_length(instruction)
    if name is None or not kind:
        raise decoder.refuse(instruction)
    half = kind.startswith(("f16", "bf16"))
    dtype = np.dtype(f"u{BITS[kind] // 8}") if half else numpy_type(kind)
    operation = _packed(kind) if half and name == "add" else OPERATIONS[name]
    space, at, width = space_of(instruction), addresses(operands[0], decoder), BITS[kind] // 8 * count
    decoder.accesses(space, width)
    sources = [[decoder.source(i, kind if not half else f"u{BITS[kind]}") for i in items(o)] for o in operands[1:]]
    modifiers = instruction.opcode
    decoder.orders_blocks |= any(instruction.has(word) for word in ("acquire", "release", "acq_rel"))
    destinations = [scatter_to(item) for item in items(result)]

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        values = [np.stack([m.pick(s(m), lanes) for s in group], axis=1) for group in sources]
        old = np.empty((len(lanes), count), dtype)
        places = at(m, lanes)
        if dtype.kind != "f" and not half:
            note_strong(m, space, places, lanes, modifiers, writes=True)
        for part in access.parts(m, space, places, lanes, width, store=True):
            chosen = np.arange(len(lanes)) if part.which is None else part.which
            access.check_not_pending(part, width)
            access.note(m, part, width, "update")
            _update(part, width, chosen, values, old, operation)
        for column, destination in enumerate(destinations):
            destination(m, old[:, column].view(f"u{dtype.itemsize}"), lanes)
        return None

    return step


def _update(part: access.Part, width: int, chosen: Array, values: list[Array], old: Array, operation: Update) -> None:
    """Apply the updates in rounds, in each of which at most one thread updates an address."""
    part.storage.load(part.offsets, width, old.dtype, part.lanes)  # checks that the memory was written
    rows = part.storage.units(old.dtype, width)
    order = np.argsort(part.offsets, kind="stable")
    ordered = part.offsets[order]
    starts = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    begin = np.flatnonzero(starts)
    rank = np.arange(len(order)) - np.repeat(begin, np.diff(np.append(begin, len(order))))
    for turn in range(int(rank.max()) + 1):
        now = order[rank == turn]
        units, places = part.offsets[now] // width, chosen[now]
        old[places] = rows[units]
        rows[units] = operation(old[places], *(v[places] for v in values))
