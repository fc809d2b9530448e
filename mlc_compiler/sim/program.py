"""A parsed PTX module: kernels, their instructions and variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

BITS = {
    **{f"{kind}{bits}": bits for kind in "bsu" for bits in (8, 16, 32, 64)},
    **{"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "pred": 1, "b128": 128, "tf32": 32},
    **{"u16x2": 32, "s16x2": 32, "f32x2": 64},
}


@dataclass(frozen=True)
class Register:
    """A virtual register: its index in the kernel and its width in bits (1 for predicates)."""

    index: int
    bits: int


@dataclass(frozen=True)
class Immediate:
    """A literal: an integer, or the value of a ``0f...``/``0d...`` literal with ``bits`` 32 or 64."""

    value: int
    bits: int = 0  # 0: an integer of the width of the instruction's type


@dataclass(frozen=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Label:
    """A branch target; ``target`` is an index into the instructions."""

    name: str
    target: int = -1


@dataclass(frozen=True)
class Address:
    """``[base + offset]``; ``coordinates`` is the vector of a tensor copy's ``[map, {x, y}]``."""

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """``{a, b, ...}``, or the parenthesized list of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """``a|b``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """``!p``."""

    operand: Operand


@dataclass(frozen=True)
class Sink:
    """``_``: a discarded destination."""


Operand: TypeAlias = Register | Immediate | Special | Symbol | Label | Address | Vector | Pair | Negated | Sink


def registers_in(operands: Iterable[Operand | None]) -> Iterator[int]:
    """The indices of the registers within operands."""
    for operand in operands:
        match operand:
            case Register(index, _):
                yield index
            case Address(base, _, coordinates):
                yield from registers_in((base, *coordinates))
            case Vector(items):
                yield from registers_in(items)
            case Pair(first, second):
                yield from registers_in((first, second))
            case Negated(inner):
                yield from registers_in((inner,))


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``opcode`` is split at its dots: ``("ld", "global", "v4", "b32")``."""

    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand | None  # a predicate register, possibly negated
    line: int
    text: str

    def has(self, modifier: str) -> bool:
        return modifier in self.opcode[1:]

    @property
    def type(self) -> str:
        """The last type in the opcode, which is the type of the sources."""
        return next((part for part in reversed(self.opcode) if part in BITS), "")


@dataclass(frozen=True)
class Variable:
    """A variable of a state space; ``nbytes`` 0: an external array, whose size the launch determines."""

    name: str
    space: str
    nbytes: int
    align: int
    data: bytes | None = None


@dataclass(frozen=True)
class Function:
    """A kernel or device function: its instructions, with labels resolved and calls not inlined."""

    name: str
    is_kernel: bool
    results: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    registers: tuple[int, ...]  # widths in bits
    variables: tuple[Variable, ...]
    code: tuple[Instruction, ...]
    directives: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel with all calls inlined.

    parameters: in order, each with its size in bytes; variables: by name, including those of the module;
    maxntid: the largest block that ``.maxntid`` or ``.reqntid`` allows, () when neither is given;
    shared_bytes: static shared memory; target: for example "sm_90a".
    """

    name: str
    target: str
    parameters: tuple[Variable, ...]
    registers: tuple[int, ...]
    variables: Mapping[str, Variable]
    code: tuple[Instruction, ...]
    maxntid: tuple[int, ...]
    shared_bytes: int
    decoded: dict[str, object] = field(default_factory=dict)  # cached by the simulator between launches


@dataclass(frozen=True, eq=False)
class Program:
    """A PTX module."""

    version: str
    target: str
    kernels: Mapping[str, Kernel]
