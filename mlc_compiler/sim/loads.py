"""``ld``, ``st``, ``cvta`` and other address arithmetic (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim import access
from mlc_compiler.sim.block_order import note_strong
from mlc_compiler.sim.decoder import Decoder, Step, Store, builds, numpy_type
from mlc_compiler.sim.program import BITS, Address, Instruction, Operand, Register, Symbol, Vector
from mlc_compiler.sim.threads import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WORDS, Threads

Array = npt.NDArray[Any]
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "global": 0, "const": 0}
STRONG = ("volatile", "relaxed", "acquire", "release", "mmio")
Addresses = Callable[[Threads, Array], Array]


def space_of(instruction: Instruction) -> str:
    """The state space named by an opcode."""
    parts = (part.split("::")[0] for part in instruction.opcode[1:])
    return next((part for part in parts if part in WINDOWS), "generic")


def addresses(operand: Operand, decoder: Decoder) -> Addresses:
    """Return a function that computes the int64 addresses ``[base + offset]`` of some lanes."""
    if not isinstance(operand, Address):
        operand = Address(operand)
    base = decoder.source(operand.base, "s64" if _bits(operand.base) == 64 else "u32")
    offset = np.int64(operand.offset)

    def evaluate(m: Threads, lanes: Array) -> Array:
        return m.pick(base(m), lanes).astype(np.int64) + offset

    return evaluate


def _bits(operand: Operand) -> int:
    return operand.bits if isinstance(operand, Register) else 64


def _place(operand: Operand, space: str, decoder: Decoder) -> str:
    """The state space of an operand; call parameters are stored with the local variables."""
    base = operand.base if isinstance(operand, Address) else operand
    if space == "param" and isinstance(base, Symbol) and base.name not in decoder.parameter_names:
        return "local"
    return space


def vector_length(instruction: Instruction) -> int:
    return next((int(part[1:]) for part in instruction.opcode if part in ("v2", "v4", "v8")), 1)


def element_type(kind: str) -> np.dtype[Any]:
    """The dtype in which an element is loaded: signed if it must be sign-extended in its register."""
    return numpy_type(kind if kind[0] == "s" else f"u{BITS[kind]}")


def items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@builds("ld", "ldu")
def load(instruction: Instruction, decoder: Decoder) -> Step:
    target, address = instruction.operands[:2]
    kind, count = instruction.type, vector_length(instruction)
    space = _place(address, space_of(instruction), decoder)
    width, dtype = BITS[kind] // 8 * count, element_type(kind)
    decoder.accesses(space, min(width, 16))
    at = addresses(address, decoder)
    destinations = [scatter_to(item) for item in items(target)]
    strong = any(instruction.has(word) for word in STRONG)

    modifiers = instruction.opcode
    decoder.orders_blocks |= "acquire" in modifiers

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        places = at(m, lanes)
        values = access.load(m, space, places, lanes, width, dtype, strong)
        if strong:
            note_strong(m, space, places, lanes, modifiers, writes=False)
        for column, destination in enumerate(destinations):
            destination(m, values[:, column], lanes)
        return None

    if space == "param":
        return _uniform_parameter(at, destinations, width, dtype)
    return step


def _uniform_parameter(at: Addresses, destinations: list[Any], width: int, dtype: np.dtype[Any]) -> Step:
    """Load a kernel parameter, which is the same for all threads: usually one element stands for all lanes."""

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        place = at(m, lanes)
        if m.whole and (place == place[0]).all():
            values = access.load(m, "param", place[:1], lanes[:1], width, dtype)
            values = np.broadcast_to(values, (1, values.shape[1]))
            for column, destination in enumerate(destinations):
                destination(m, values[:, column], None)
            return None
        values = access.load(m, "param", place, lanes, width, dtype)
        for column, destination in enumerate(destinations):
            destination(m, values[:, column], lanes)
        return None

    return step


def scatter_to(operand: Operand) -> Callable[[Threads, Array, Array | None], None]:
    """Return a function that sets a register at some lanes (None: one value for all), extending by their sign."""
    if not isinstance(operand, Register):
        return lambda m, values, lanes: None
    index, word = operand.index, WORDS[operand.bits]
    signed = np.dtype(f"i{word.itemsize}")

    def scatter(m: Threads, values: Array, lanes: Array | None) -> None:
        if values.dtype != word:
            values = values.astype(signed).view(word) if values.dtype.kind == "i" else values.astype(word)
        if lanes is None:
            m.registers[index] = np.ascontiguousarray(values)
        else:
            m.scatter(index, values, lanes)

    return scatter


@builds("st")
def store(instruction: Instruction, decoder: Decoder) -> Step:
    address, value = instruction.operands[:2]
    kind, count = instruction.type, vector_length(instruction)
    space = _place(address, space_of(instruction), decoder)
    width = BITS[kind] // 8 * count
    decoder.accesses(space, min(width, 16))
    at = addresses(address, decoder)
    sources = [decoder.source(item, f"u{BITS[kind]}") for item in items(value)]
    modifiers = instruction.opcode
    decoder.orders_blocks |= "release" in modifiers
    strong = any(instruction.has(word) for word in STRONG)

    def step(m: Threads) -> int | None:
        lanes = m.lanes()
        places = at(m, lanes)
        values = np.stack([m.pick(source(m), lanes) for source in sources], axis=1)
        access.store(m, space, places, lanes, width, values, strong)
        if strong:
            note_strong(m, space, places, lanes, modifiers, writes=True)
        return None

    return step


@builds("cvta")
def convert_address(instruction: Instruction, decoder: Decoder) -> Step:
    """``cvta.space`` converts an address to generic, ``cvta.to.space`` from generic."""
    window = WINDOWS[next(part.split("::")[0] for part in instruction.opcode if part.split("::")[0] in WINDOWS)]
    source = decoder.source(instruction.operands[1], instruction.type)
    destination: Store = decoder.destination(instruction.operands[0])
    change = np.array([window], np.uint64)
    if instruction.has("to"):
        return lambda m: destination(m, source(m) & ~change)
    return lambda m: destination(m, source(m) | change)


@builds("isspacep")
def is_in_space(instruction: Instruction, decoder: Decoder) -> Step:
    window = np.uint64(WINDOWS[space_of(instruction)] >> 56)
    source = decoder.source(instruction.operands[1], "u64")
    destination = decoder.destination(instruction.operands[0])
    return lambda m: destination(m, (source(m) >> np.uint64(56)) == window)
