"""Inlining of device functions, so that a kernel is a single list of instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.program import (
    Address,
    Function,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)


def expand_calls(
    function: Function, functions: Mapping[str, Function]
) -> tuple[tuple[Instruction, ...], tuple[int, ...], tuple[Variable, ...]]:
    """Inline all calls of ``function``; returns code, register widths and variables.

    Raises SimulationError for recursion, indirect calls and functions without a body.
    """
    if all(instruction.opcode[0] != "call" for instruction in function.code):
        return function.code, function.registers, function.variables
    expansion = _Expansion(functions)
    expansion.add(function, {}, (), None)
    code = tuple(_mapped(i, expansion.place) for i in expansion.code)
    return code, tuple(expansion.registers), tuple(expansion.variables)


@dataclass(frozen=True)
class _Place(Label):
    """An unresolved label: instruction ``target`` of the ``copy``-th inlined body."""

    copy: int = 0


@dataclass
class _Expansion:
    functions: Mapping[str, Function]
    code: list[Instruction] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)  # per copy: the new position of each instruction

    def add(self, function: Function, names: Mapping[str, str], stack: tuple[str, ...], returns: _Place | None) -> None:
        """Append the body of a function; ``names`` renames parameters to the caller's variables."""
        if function.name in stack:
            raise SimulationError(f"function {function.name} is recursive, which is not simulated")
        copy, first = len(self.places), len(self.registers)
        self.places.append([])
        self.registers += function.registers
        renamed = {v.name: f"{copy}/{v.name}" if stack else v.name for v in function.variables} | dict(names)
        self.variables += [replace(v, name=renamed[v.name]) for v in function.variables]

        def local(operand: Operand) -> Operand:
            match operand:
                case Register(index, bits):
                    return Register(first + index, bits)
                case Symbol(name, offset):
                    return Symbol(renamed.get(name, name), offset)
                case Label(name, target):
                    return _Place(name, target, copy)
            return operand

        for instruction in function.code:
            self.places[copy].append(len(self.code))
            moved = _mapped(instruction, local)
            if moved.opcode[0] == "call":
                self._call(moved, (*stack, function.name))
            elif moved.opcode[0] == "ret" and returns is not None:
                self.code.append(replace(moved, opcode=("bra",), operands=(returns,)))
            else:
                self.code.append(moved)
        self.places[copy].append(len(self.code))

    def _call(self, call: Instruction, stack: tuple[str, ...]) -> None:
        groups = [o.items for o in call.operands if isinstance(o, Vector)]
        target = next((o for o in call.operands if isinstance(o, Symbol)), None)
        callee = self.functions.get(target.name) if target else None
        if callee is None or call.guard is not None:
            raise SimulationError("only direct calls of functions of the same module are simulated", where=[call.text])
        actual = [o.name for group in groups for o in group if isinstance(o, Symbol)]
        formal = [v.name for v in (*callee.results, *callee.parameters)]
        self.add(callee, dict(zip(formal, actual)), stack, _Place("return", len(callee.code), len(self.places)))

    def place(self, operand: Operand) -> Operand:
        if isinstance(operand, _Place):
            return Label(operand.name, self.places[operand.copy][operand.target])
        return operand


def _mapped(instruction: Instruction, change: Callable[[Operand], Operand]) -> Instruction:
    guard = instruction.guard
    return replace(
        instruction,
        operands=tuple(_map(o, change) for o in instruction.operands),
        guard=None if guard is None else _map(guard, change),
    )


def _map_all(operands: Sequence[Operand], change: Callable[[Operand], Operand]) -> tuple[Operand, ...]:
    return tuple(_map(o, change) for o in operands)


def _map(operand: Operand, change: Callable[[Operand], Operand]) -> Operand:
    """Apply ``change`` to the innermost parts of an operand."""
    match operand:
        case Address(base, offset, coordinates):
            return Address(_map(base, change), offset, _map_all(coordinates, change))
        case Vector(items):
            return Vector(_map_all(items, change))
        case Pair(first, second):
            return Pair(_map(first, change), _map(second, change))
        case Negated(inner):
            return Negated(_map(inner, change))
    return change(operand)
