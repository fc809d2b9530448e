"""Decoder: translates instructions to closures over ``Threads``, once per kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.program import (
    BITS,
    Immediate,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
)
from mlc_compiler.sim.threads import WORDS, Layout, Threads

Array = npt.NDArray[Any]
Step: TypeAlias = Callable[[Threads], int | None]  # the next program counter, None for the next instruction, or AWAY
Value: TypeAlias = Callable[[Threads], Array]
Store: TypeAlias = Callable[[Threads, Array], None]
Builder: TypeAlias = Callable[[Instruction, "Decoder"], Step]

BUILDERS: dict[str, Builder] = {}
CONTROL: set[str] = set()  # opcodes whose lanes may diverge: a guard splits the lanes
AWAY = -1  # result of a step after which no lane is active: all were parked, retired or pushed


def builds(*opcodes: str, control: bool = False) -> Callable[[Builder], Builder]:
    """Decorator: register the decoder of instructions whose opcode begins with one of ``opcodes``."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(opcodes, builder))
        if control:
            CONTROL.update(opcodes)
        return builder

    return register


@dataclass(eq=False)
class Decoded:
    """A decoded kernel."""

    steps: list[Step]
    layout: Layout


class Decoder:
    """Context of builders: the kernel, and the facts that they record about it."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.narrowest = {"shared": 16, "global": 16}
        self.offsets: dict[str, int] = {}
        self.orders_blocks = self.begins_early = False
        sizes = {space: self._place(space) for space in ("shared", "local", "param")}
        self.parameter_names = {p.name for p in kernel.parameters}
        at = 0
        for parameter in kernel.parameters:
            at = -(-at // parameter.align) * parameter.align
            self.offsets[parameter.name] = at
            at += parameter.nbytes
        self.sizes = sizes | {"parameters": at}

    def _place(self, space: str) -> int:
        """Assign offsets to the kernel's variables of one state space; call parameters follow the local variables.

        All external shared arrays begin at the end of the static variables. Returns the number of bytes in use.
        """
        at = self.offsets.get("local end", 0) if space == "param" else 0
        variables = [v for v in self.kernel.variables.values() if v.space == space]
        external = [v for v in variables if v.nbytes == 0]
        for variable in (v for v in variables if v.nbytes):
            align = max(variable.align, 16) if space == "shared" else variable.align
            at = -(-at // align) * align
            self.offsets[variable.name] = at
            at += variable.nbytes
        if external:
            align = max(16, *(v.align for v in external))
            at = -(-at // align) * align
            self.offsets.update(dict.fromkeys((v.name for v in external), at))
        if space == "local":
            self.offsets["local end"] = at
        return at

    def decode(self) -> Decoded:
        steps = [self.step(instruction) for instruction in self.kernel.code]
        layout = Layout(
            self.offsets,
            self.sizes["shared"],
            max(self.sizes["local"], self.sizes["param"]),
            self.sizes["parameters"],
            self.narrowest["shared"],
            self.narrowest["global"],
            self.orders_blocks,
            self.begins_early,
        )
        return Decoded(steps, layout)

    def step(self, instruction: Instruction) -> Step:
        builder = BUILDERS.get(instruction.opcode[0])
        if builder is None:
            raise self.refuse(instruction)
        try:
            step = builder(instruction, self)
        except (KeyError, IndexError, ValueError, StopIteration):
            raise self.refuse(instruction) from None
        if instruction.guard is None:
            return step
        guarded = _branching if instruction.opcode[0] in CONTROL else _guarded
        return guarded(self.predicate(instruction.guard), step)

    def refuse(self, instruction: Instruction, what: str | None = None) -> SimulationError:
        """Create the error for an instruction that is not simulated."""
        name = ".".join(instruction.opcode)
        return SimulationError(
            f"{what or f'instruction {name}'} is not simulated",
            where=[f"kernel {self.kernel.name}", f"{instruction.text} (line {instruction.line})"],
        )

    def allow(self, instruction: Instruction, *modifiers: str) -> None:
        """Refuse an instruction with parts other than types and ``modifiers``, which could change its semantics."""
        if unknown := [part for part in instruction.opcode[1:] if part not in BITS and part not in modifiers]:
            raise self.refuse(instruction, f"instruction {'.'.join(instruction.opcode)} (.{unknown[0]})")

    def accesses(self, space: str, width: int) -> None:
        """Record the width of an access, which determines the granularity of race detection."""
        for kind in ("shared", "global"):
            if space in (kind, "generic"):
                self.narrowest[kind] = min(self.narrowest[kind], width)

    # -- operands

    def source(self, operand: Operand, kind: str) -> Value:
        """The values of an operand as an array of type ``kind``: "u32", "s32", "f32", "f16", ... (bf16: uint16)."""
        dtype = numpy_type(kind)
        match operand:
            case Register(index, bits):
                word = WORDS[bits]
                if word == dtype:
                    return lambda m: m.registers[index]
                if word.itemsize == dtype.itemsize and bits > 1:
                    return lambda m: m.registers[index].view(dtype)
                if word.itemsize > dtype.itemsize:
                    raw = np.dtype(f"u{dtype.itemsize}")
                    return lambda m: m.registers[index].astype(raw).view(dtype)
                return lambda m: m.registers[index].astype(dtype)
            case Immediate():
                constant = immediate(operand, kind)
                return lambda m: constant
            case Special(name):
                return lambda m: m.special(name).astype(dtype)
            case Negated(inner):
                positive = self.source(inner, kind)
                return lambda m: ~positive(m)
            case Symbol():
                return self.symbol(operand, dtype)
        raise SimulationError(f"operand {operand} has no value", where=[f"kernel {self.kernel.name}"])

    def symbol(self, symbol: Symbol, dtype: np.dtype[Any]) -> Value:
        """The address of a variable in its own space; .const and .global variables have global addresses."""
        if symbol.name in self.offsets:
            constant = np.array([self.offsets[symbol.name] + symbol.offset], dtype)
            return lambda m: constant
        variable = self.kernel.variables.get(symbol.name)
        if variable is None:
            raise SimulationError(f"{symbol.name} is not declared", where=[f"kernel {self.kernel.name}"])

        def address(m: Threads) -> Array:
            return np.array([m.memory.variable(variable) + symbol.offset], dtype)

        return address

    def predicate(self, operand: Operand) -> Value:
        return self.source(operand, "pred")

    def destination(self, operand: Operand) -> Store:
        """Return a function that stores results: arrays of the register's own dtype, or a wider or narrower one."""
        if isinstance(operand, Sink):
            return lambda m, values: None
        if not isinstance(operand, Register):
            raise SimulationError(f"{operand} is no destination", where=[f"kernel {self.kernel.name}"])
        index, word = operand.index, WORDS[operand.bits]

        def store(m: Threads, values: Array) -> None:
            if values.dtype != word:
                same = values.dtype.itemsize == word.itemsize and word != WORDS[1]
                values = values.view(word) if same else values.astype(word)
            m.write(index, values)

        return store


def numpy_type(kind: str) -> np.dtype[Any]:
    """The numpy dtype for values of a PTX type; bfloat16 and packed types are unsigned integers."""
    if kind == "pred":
        return np.dtype(bool)
    if kind in ("f16", "f32", "f64"):
        return np.dtype(f"f{BITS[kind] // 8}")
    if kind[0] == "s" and kind[1:].isdigit():
        return np.dtype(f"i{BITS[kind] // 8}")
    return np.dtype(f"u{BITS[kind] // 8}")


def immediate(operand: Immediate, kind: str) -> Array:
    """Convert an immediate to an array of one element."""
    dtype = numpy_type(kind)
    if kind == "pred":
        return np.array([operand.value != 0])
    if operand.bits and operand.bits != BITS[kind] and dtype.kind == "f":
        value = np.array([operand.value], f"u{operand.bits // 8}").view(f"f{operand.bits // 8}")
        return value.astype(dtype)
    raw = np.array([operand.value % (1 << BITS[kind])], f"u{dtype.itemsize}")
    return raw.view(dtype)


def _guarded(predicate: Value, step: Step) -> Step:
    """``@p instruction``: only the lanes with p execute it."""

    def guarded(m: Threads) -> int | None:
        mask, whole = m.mask, m.whole
        taken = m.active() & predicate(m)
        count = np.count_nonzero(taken)
        if count == 0:
            return None
        m.mask, m.whole = (None if count == m.size else taken), whole and np.array_equal(taken, m.active())
        try:
            return step(m)
        finally:
            m.mask, m.whole = mask, whole

    return guarded


def _branching(predicate: Value, step: Step) -> Step:
    """``@p instruction`` whose lanes may diverge."""

    def branching(m: Threads) -> int | None:
        active = m.active()
        wanted = predicate(m)
        if len(wanted) == 1:
            return step(m) if wanted[0] else None
        taken = active & wanted
        count = np.count_nonzero(taken)
        if count == 0:
            return None
        rest = active & ~wanted
        if not rest.any():
            return step(m)
        pc = m.pc
        m.push(pc + 1, rest)
        m.activate(taken)
        m.whole = False
        after = step(m)
        if after != AWAY:
            m.push(pc + 1 if after is None else after, m.active())
        return AWAY

    return branching
