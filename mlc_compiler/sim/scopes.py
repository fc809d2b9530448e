"""Names of a function: registers, variables and labels, with nested scopes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.program import (
    Address,
    Immediate,
    Instruction,
    Label,
    Negated,
    Operand,
    Register,
    Special,
    Symbol,
    Vector,
)

NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
SPECIALS = (
    "%tid %ntid %ctaid %nctaid %laneid %warpid %nwarpid %lanemask %clock %globaltimer %smid %nsmid %gridid "
    "%dynamic_smem_size %total_smem_size %aggr_smem_size %cluster %is_explicit_cluster %nclusterid %envreg %pm"
).split()


@dataclass(frozen=True)
class ScopedLabel(Label):
    """An unresolved label."""

    scope: Scope | None = None


@dataclass(eq=False)
class Scope:
    """One pair of braces. ranges: register name or prefix -> (bits, first index, count or -1 for a single one)."""

    parent: Scope | None
    number: int
    ranges: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    labels: dict[str, int | tuple[str, ...]] = field(default_factory=dict)
    known: dict[str, Register | None] = field(default_factory=dict)  # resolved names

    @property
    def prefix(self) -> str:
        return f"{self.number}:" if self.number else ""

    def operand(self, token: str, text: str, line: int) -> Operand:
        """Parse a name or number to an operand."""
        if token.startswith("!"):
            return Negated(self.operand(token[1:].strip(), text, line))
        if NUMBER.fullmatch(token):
            return Immediate(int(_decimal(token.rstrip("U")), 0))
        if match := FLOAT.fullmatch(token):
            return Immediate(int(match.group(1) or match.group(2), 16), 32 if match.group(1) else 64)
        if register := self._register(token):
            return register
        if token.startswith("%"):
            if token.startswith(tuple(SPECIALS)):
                return Special(token)
            raise SimulationError(f"{token} is not declared", where=[f"{text} (line {line})"])
        if match := re.fullmatch(r"([\w$]+)\s*\+\s*(-?\w+)", token):
            return Symbol(self._variable(match.group(1)), int(match.group(2), 0))
        return ScopedLabel(token, -1, self)

    def _register(self, token: str) -> Register | None:
        if token not in self.known:
            self.known[token] = self._find_register(token)
        return self.known[token]

    def _find_register(self, token: str) -> Register | None:
        match = re.fullmatch(r"(.*?)(\d+)", token)
        scope: Scope | None = self
        while scope is not None:
            if token in scope.ranges and scope.ranges[token][2] < 0:
                return Register(scope.ranges[token][1], scope.ranges[token][0])
            if match and match.group(1) in scope.ranges:
                bits, first, count = scope.ranges[match.group(1)]
                if int(match.group(2)) < count:
                    return Register(first + int(match.group(2)), bits)
            scope = scope.parent
        return None

    def _variable(self, name: str) -> str:
        """The name of a variable with the prefix of its declaring scope."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.prefix + name
            scope = scope.parent
        return name

    def label(self, name: str) -> int | tuple[str, ...] | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


def _decimal(token: str) -> str:
    """Convert an octal literal of PTX (leading 0) to Python's syntax; LLVM emits none, except for 0 itself."""
    sign, digits = ("-", token[1:]) if token.startswith("-") else ("", token)
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    return sign + ("0o" + digits[1:] if octal else digits)


def resolve_labels(code: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Replace labels in instructions by their targets, and other names by symbols."""
    return tuple(replace(i, operands=tuple(_resolve(o) for o in i.operands)) for i in code)


def _resolve(operand: Operand) -> Operand:
    if isinstance(operand, ScopedLabel):
        scope = cast(Scope, operand.scope)
        target = scope.label(operand.name)
        if isinstance(target, int):
            return Label(operand.name, target)
        if target is not None:
            return Vector(tuple(_resolve(ScopedLabel(name, -1, scope)) for name in target))
        return Symbol(scope._variable(operand.name))
    if isinstance(operand, Vector):
        return Vector(tuple(_resolve(item) for item in operand.items))
    if isinstance(operand, Address):
        return replace(operand, base=_resolve(operand.base))
    return operand
