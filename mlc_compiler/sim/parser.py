"""Parser from PTX text to ``Program``. Grammar: PTX ISA 9.0, sections 4 and 5."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from mlc_compiler.sim.errors import SimulationError
from mlc_compiler.sim.inlining import expand_calls
from mlc_compiler.sim.operands import parse_operands, split_list
from mlc_compiler.sim.program import BITS, Function, Instruction, Kernel, Program, Variable
from mlc_compiler.sim.scopes import Scope, resolve_labels

HEADER = re.compile(r"\s*((?:\.(?:visible|weak|extern|common)\s+)*)\.(entry|func)\b")
LABEL = re.compile(r"\s*([A-Za-z_$][\w$]*)\s*:(?!:)")
DIRECTIVE_LINE = re.compile(r"\s*\.(version|target|address_size|file|loc|pragma|section)\b([^\n;]*)[;\n]")
VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(shared|local|global|const|param)\s+(.*?)([\w$%]+)\s*((?:\[\w*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+")


def parse_ptx(text: str) -> Program:
    """Parse a PTX module.

    Raises SimulationError, with the line, for text that is not PTX or that the simulator cannot represent.
    Unknown instructions are refused when a kernel that contains them runs.
    """
    return _Module(_without_comments(text)).parse()


def _without_comments(text: str) -> str:
    """Blank the comments of a text, keeping its lines."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731
    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)


class _Module:
    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.counted = (0, 1)  # a position and its line
        self.version = self.target = ""
        self.variables: list[Variable] = []
        self.functions: dict[str, Function] = {}

    def parse(self) -> Program:
        while self.text[self.at :].strip():
            if match := DIRECTIVE_LINE.match(self.text, self.at):
                self._directive(match)
            elif match := HEADER.match(self.text, self.at):
                self.at = match.end()
                self._function(match.group(2) == "entry")
            else:
                self.variables.append(self._variable(self._statement(), ""))
        kernels = {f.name: self._kernel(f) for f in self.functions.values() if f.is_kernel}
        return Program(self.version, self.target, kernels)

    def _directive(self, match: re.Match[str]) -> None:
        name, rest = match.group(1), match.group(2).strip()
        self.at = match.end()
        if name == "version":
            self.version = rest
        elif name == "target":
            self.target = rest.split(",")[0].strip()
        elif name == "section":
            self.at = self.text.index("}", self.at) + 1

    def _line(self) -> int:
        """The line of the current position; positions only advance."""
        start, line = self.counted
        self.counted = (self.at, line + self.text.count("\n", start, self.at))
        return self.counted[1]

    def _fail(self, message: str) -> SimulationError:
        return SimulationError(message, where=[f"line {self._line()} of the PTX"])

    def _statement(self) -> str:
        """Consume and return the text up to the next semicolon."""
        end = self.text.find(";", self.at)
        if end < 0:
            raise self._fail("PTX ends within a statement; expected ';'")
        statement, self.at = self.text[self.at : end].strip(), end + 1
        return statement

    def _parentheses(self) -> list[str]:
        """Parse ``(a, b)`` at the current position; empty if there is none."""
        match = re.compile(r"\s*\(([^()]*)\)").match(self.text, self.at)
        if match is None:
            return []
        self.at = match.end()
        return split_list(match.group(1))

    def _function(self, is_kernel: bool) -> None:
        results = [] if is_kernel else self._parentheses()
        name_match = re.compile(r"\s*([\w$]+)").match(self.text, self.at)
        if name_match is None:
            raise self._fail("a function without a name")
        self.at = name_match.end()
        parameters = self._parentheses()
        open_at = re.compile(r"[{;]").search(self.text, self.at)
        if open_at is None:
            raise self._fail(f"function {name_match.group(1)} has no body")
        directives = _performance_directives(self.text[self.at : open_at.start()])
        self.at = open_at.end()
        if open_at.group() == ";":
            return  # a declaration
        body = _Body(self)
        code, registers, variables = body.parse()
        self.functions[name_match.group(1)] = Function(
            name_match.group(1),
            is_kernel,
            tuple(self._variable(p, "") for p in results),
            tuple(self._variable(p, "") for p in parameters),
            registers,
            variables,
            code,
            directives,
        )

    def _variable(self, statement: str, prefix: str) -> Variable:
        match = VARIABLE.match(statement)
        if match is None:
            raise self._fail(f"cannot read {statement.split(chr(10))[0]!r}; expected a variable or a function")
        space, attributes, name, dimensions, initial = match.groups()
        kind = next((t for t in re.findall(r"\.(\w+)", attributes) if t in BITS), None)
        if kind is None:
            raise self._fail(f"variable {name} has no known type")
        element = max(BITS[kind] // 8, 1) * _vector_length(attributes)
        count = 1
        for size in re.findall(r"\[(\w*)\]", dimensions):
            count *= int(size, 0) if size else 0
        align = re.search(r"(?<!\.ptr )(?<!\.ptr \.global )\.align\s+(\d+)", attributes)
        data = _initial_bytes(initial, kind, element * count) if initial else None
        alignment = int(align.group(1)) if align and ".ptr" not in attributes else element
        return Variable(prefix + name, space, element * count, alignment, data)

    def _kernel(self, function: Function) -> Kernel:
        code, registers, own = expand_calls(function, self.functions)
        variables = {v.name: v for v in [*self.variables, *own]}
        threads = function.directives.get("reqntid") or function.directives.get("maxntid") or ()
        if any(key.startswith(("explicitcluster", "reqnctapercluster")) for key in function.directives):
            raise SimulationError(f"kernel {function.name} asks for a thread block cluster, which is not simulated")
        shared = sum(-(-v.nbytes // 16) * 16 for v in variables.values() if v.space == "shared")
        return Kernel(function.name, self.target, function.parameters, registers, variables, code, threads, shared)


def _vector_length(attributes: str) -> int:
    match = re.search(r"\.v([248])\b", attributes)
    return int(match.group(1)) if match else 1


def _performance_directives(text: str) -> dict[str, tuple[int, ...]]:
    found = re.findall(r"\.(\w+)\s*((?:\d+\s*,?\s*)*)", text)
    return {name: tuple(int(n) for n in re.findall(r"\d+", numbers)) for name, numbers in found}


def _initial_bytes(text: str, kind: str, nbytes: int) -> bytes:
    """The bytes of an initializer; literals of a ``.b8`` array are bytes, literals of ``.f32`` may be ``0f...``."""
    width = BITS[kind] // 8
    data = b""
    for literal in split_list(text.replace("{", "").replace("}", "")):
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", literal):
            data += int(literal[2:], 16).to_bytes(width, "little")
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", literal):
            data += (int(literal.rstrip("U"), 0) % (1 << 8 * width)).to_bytes(width, "little")
        elif kind.startswith("f"):
            data += struct.pack("<f" if width == 4 else "<d", float(literal))
        else:
            raise SimulationError(f"initializer {literal!r} is not a number, and addresses in data are not simulated")
    return data.ljust(nbytes, b"\0")


class _Body:
    """Parser of the statements of one function."""

    def __init__(self, module: _Module):
        self.module = module
        self.scope = Scope(None, 0)
        self.scopes = 1
        self.widths: list[int] = []
        self.variables: list[Variable] = []
        self.code: list[Instruction] = []

    def parse(self) -> tuple[tuple[Instruction, ...], tuple[int, ...], tuple[Variable, ...]]:
        for statement, line in self._statements():
            if statement.startswith("."):
                self._declaration(statement)
            else:
                self.code.append(self._instruction(statement, line))
        return resolve_labels(self.code), tuple(self.widths), tuple(self.variables)

    def _statements(self) -> Iterator[tuple[str, int]]:
        """Yield statements and their lines, tracking scopes and labels."""
        module = self.module
        space = re.compile(r"\s*")
        while True:
            match = space.match(module.text, module.at)
            module.at = match.end() if match else module.at
            if module.text.startswith("{", module.at):
                module.at += 1
                self.scope = Scope(self.scope, self.scopes)
                self.scopes += 1
            elif module.text.startswith("}", module.at):
                module.at += 1
                if self.scope.parent is None:
                    return
                self.scope = self.scope.parent
            elif match := DIRECTIVE_LINE.match(module.text, module.at):
                module.at = match.end()
            elif match := LABEL.match(module.text, module.at):
                module.at = match.end()
                self.scope.labels[match.group(1)] = self._label(match.group(1))
            else:
                line = module._line()
                yield module._statement(), line

    def _label(self, name: str) -> int | tuple[str, ...]:
        """The position of a label, or the labels of ``name: .branchtargets ...``."""
        module = self.module
        match = re.compile(r"\s*\.branchtargets\s+([^;]*);").match(module.text, module.at)
        if match is None:
            return len(self.code)
        module.at = match.end()
        return tuple(split_list(match.group(1)))

    def _declaration(self, statement: str) -> None:
        if not statement.startswith(".reg"):
            variable = self.module._variable(statement, self.scope.prefix)
            self.scope.variables.add(variable.name.removeprefix(self.scope.prefix))
            self.variables.append(variable)
            return
        kind, names = re.match(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+(.*)", statement, re.S).groups()  # type: ignore[union-attr]
        for name in split_list(names):
            if match := re.fullmatch(r"([\w$%]+)<(\d+)>", name):
                self.scope.ranges[match.group(1)] = (BITS[kind], len(self.widths), int(match.group(2)))
                self.widths += [BITS[kind]] * int(match.group(2))
            else:
                self.scope.ranges[name] = (BITS[kind], len(self.widths), -1)
                self.widths.append(BITS[kind])

    def _instruction(self, statement: str, line: int) -> Instruction:
        text = " ".join(statement.split())
        rest, guard = text, None
        if match := GUARD.match(text):
            guard = self.scope.operand(("!" if match.group(1) else "") + match.group(2), text, line)
            rest = text[match.end() :]
        opcode, _, operands = rest.partition(" ")
        parsed = parse_operands(operands, lambda token: self.scope.operand(token, text, line))
        return Instruction(tuple(opcode.split(".")), parsed, guard, line, text)
