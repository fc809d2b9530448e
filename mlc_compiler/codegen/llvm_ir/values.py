"""LLVM values and what contains them: constants, globals, functions with blocks of instructions, modules.

An instruction is a line of text from the start. Only what changes later is an object: phi nodes, and terminators, which
get metadata.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from .types import FunctionType, PointerType, Type, VectorType, escape

PTR = PointerType()
_SIMPLE = re.compile(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*")


class Value:
    """A value with its type. ref: its spelling as an operand, such as ``%.5``."""

    __slots__ = ("ref", "type")

    def __init__(self, type_: Type, ref: str):
        self.type = type_
        self.ref = ref

    @property
    def typed(self) -> str:
        """The spelling with the type in front: ``i32 %.5``."""
        return f"{self.type.text} {self.ref}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.typed}>"


class _Undefined:
    """``undef``, as the value of a constant."""


Undefined: Final = _Undefined()


class Constant(Value):
    """A constant. constant: a number, bytes, a sequence of constants, None for zero, or ``Undefined``.

    Raises TypeError or ValueError for what the type has no constant for.
    """

    __slots__ = ("constant",)

    def __init__(self, type_: Type, constant: Any):
        if constant is None:
            ref = type_.null
        elif constant is Undefined:
            ref = "undef"
        else:
            if isinstance(type_, VectorType):
                element = type_.element
                constant = [v if isinstance(v, Value) else Constant(element, v) for v in constant]
            ref = type_.literal(constant)
        self.type = type_
        self.ref = ref
        self.constant = constant


class Module:
    """A module. globals: functions and variables by name. attached: what code generators keep beside it, by key."""

    def __init__(self, name: str):
        self.name = name
        self.triple = ""
        self.data_layout = ""
        self.globals: dict[str, Function | GlobalVariable] = {}
        self.attached: dict[str, Any] = {}
        self._metadata: list[str] = []

    @property
    def functions(self) -> list[Function]:
        """The functions that are declared or defined, in order."""
        return [g for g in self.globals.values() if isinstance(g, Function)]

    def get_function(self, name: str) -> Function | None:
        """The function of this name, if it is declared or defined."""
        found = self.globals.get(name)
        assert found is None or isinstance(found, Function)
        return found

    def add_global(self, value: Function | GlobalVariable) -> None:
        """Raises ValueError if the name is taken."""
        if self.globals.setdefault(value.name, value) is not value:
            raise ValueError(f"the module has a global {value.name!r} already")

    def get_unique_name(self, name: str) -> str:
        """``name``, or with a number after it if there is a global with that name."""
        names = (f"{name}.{i}" if i else name for i in count())
        return next(n for n in names if n not in self.globals)

    def add_metadata(self, operands: Sequence[str | Constant]) -> str:
        """The metadata node with these operands, as ``!0``; LLVM makes equal nodes one."""
        texts = [f"!{_quoted(o)}" if isinstance(o, str) else o.typed for o in operands]
        self._metadata.append(f"!{{{', '.join(texts)}}}")
        return f"!{len(self._metadata) - 1}"

    def add_loop_metadata(self, option: Sequence[str | Constant]) -> str:
        """A new node for the metadata ``llvm.loop`` of a latch: distinct, with itself as the first operand."""
        node, loop = self.add_metadata(option), f"!{len(self._metadata)}"
        self._metadata.append(f"distinct !{{{loop}, {node}}}")
        return loop

    def __str__(self) -> str:
        lines = [f'target triple = "{self.triple}"', f'target datalayout = "{self.data_layout}"']
        lines += map(str, self.globals.values())
        lines += [f"!{i} = {text}" for i, text in enumerate(self._metadata)]
        return "\n".join([f"; ModuleID = {_quoted(self.name)}", *lines, ""])


class GlobalVariable(Value):
    """A variable of a module; as a value its address. initializer: None declares a variable of another module."""

    def __init__(self, module: Module, value_type: Type, name: str, addrspace: int = 0):
        super().__init__(PointerType(addrspace), f"@{_identifier(name)}")
        self.module = module
        self.value_type = value_type
        self.name = name
        self.addrspace = addrspace
        self.linkage = ""
        self.storage_class = ""
        self.global_constant = False
        self.initializer: Constant | None = None
        self.align: int | None = None
        module.add_global(self)

    def __str__(self) -> str:
        if self.initializer is not None and self.initializer.type is not self.value_type:
            raise TypeError(f"{self.name!r} is a {self.value_type}; its initializer is a {self.initializer.type}")
        parts = (
            self.linkage or ("external" if self.initializer is None else ""),
            self.storage_class,
            f"addrspace({self.addrspace})" if self.addrspace else "",
            "constant" if self.global_constant else "global",
            self.value_type.text,
            "" if self.initializer is None else self.initializer.ref,
        )
        return f"{self.ref} = {' '.join(filter(None, parts))}{aligned(self.align)}"


class Argument(Value):
    """A parameter of a function. attributes: their spellings."""

    __slots__ = ("attributes", "function")

    def __init__(self, function: Function, type_: Type):
        super().__init__(type_, function.local())
        self.function = function
        self.attributes: set[str] = set()

    def rename(self, name: str) -> None:
        """Change the name; the argument must not have been used."""
        self.ref = self.function.local(name)

    def __str__(self) -> str:
        return " ".join([self.type.text, *sorted(self.attributes), self.ref])


class Function(Value):
    """A function of a module, declared only as long as it has no blocks; as a value its address.

    attributes: their spellings.
    """

    def __init__(self, module: Module, function_type: FunctionType, name: str):
        super().__init__(PTR, f"@{_identifier(name)}")
        self.module = module
        self.function_type = function_type
        self.name = name
        self.linkage = ""
        self.calling_convention = ""
        self.attributes: set[str] = set()
        self.blocks: list[Block] = []
        self.numbers = count()  # in the names of values and blocks
        self.args = tuple(Argument(self, t) for t in function_type.args)
        module.add_global(self)

    @property
    def is_declaration(self) -> bool:
        return not self.blocks

    @property
    def entry_basic_block(self) -> Block:
        return self.blocks[0]

    def append_basic_block(self, name: str) -> Block:
        """Add a block, whose name gets a number."""
        block = Block(self, self.local(name)[1:])
        self.blocks.append(block)
        return block

    def local(self, name: str = "") -> str:
        """The spelling of a new value of the function."""
        return f"%{_identifier(f'{name}.{next(self.numbers)}')}"

    def __str__(self) -> str:
        kind = "define" if self.blocks else "declare"
        head = [kind, self.linkage, self.calling_convention, self.function_type.return_type.text]
        parameters = [*map(str, self.args), *["..."] * self.function_type.var_arg]
        signature = f"{self.ref}({', '.join(parameters)})"
        line = " ".join(filter(None, [*head, signature, *sorted(self.attributes)]))
        return "\n".join([line, "{", *map(str, self.blocks), "}"]) if self.blocks else line


class Terminator:
    """The last instruction of a block."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text

    def set_metadata(self, kind: str, node: str) -> None:
        """Attach metadata of a kind that the instruction does not have."""
        self.text += f", !{kind} {node}"


class Phi(Value):
    """A phi node."""

    __slots__ = ("_incoming",)

    def __init__(self, type_: Type, ref: str):
        super().__init__(type_, ref)
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        """Set the value on the edge from ``block``. Raises ValueError for a value of another type."""
        if value.type is not self.type:
            raise ValueError(f"{value!r} in a phi node of type {self.type}")
        self._incoming.append(f"[{value.ref}, %{block.label}]")

    def __str__(self) -> str:
        return f"{self.ref} = phi {self.type} {', '.join(self._incoming)}"


class Block:
    """A basic block. instructions: those before the terminator."""

    __slots__ = ("function", "instructions", "label", "terminator")

    def __init__(self, function: Function, label: str):
        self.function = function
        self.label = label
        self.instructions: list[str | Phi] = []
        self.terminator: Terminator | None = None

    @property
    def size(self) -> int:
        """The number of instructions, with the terminator."""
        return len(self.instructions) + (self.terminator is not None)

    def __str__(self) -> str:
        last = [] if self.terminator is None else [self.terminator.text]
        return "\n  ".join([f"{self.label}:", *map(str, self.instructions), *last])


class InlineAsm:
    """A callee that is inline assembly. text: with LLVM's operand markers. constraints: LLVM's constraint string."""

    def __init__(self, function_type: FunctionType, text: str, constraints: str, side_effect: bool = False):
        self.function_type = function_type
        kind = "asm sideeffect" if side_effect else "asm"
        self.ref = f"{kind} {_quoted(text)}, {_quoted(constraints)}"


def _identifier(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return f'"{escape(text.encode())}"'


def aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
