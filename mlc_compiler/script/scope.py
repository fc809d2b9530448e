"""Name lookup: the scopes of functions, and the names of the surrounding code."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np

from ..ir.expr import Var
from ..ir.module import GlobalVar
from .source import Source


@dataclass(frozen=True)
class Namespace:
    """A dotted name below ``T``, ``R`` or ``I``, such as ``T.axis.remap``."""

    path: str


@dataclass(frozen=True)
class ModuleName:
    """The module being defined, under the name ``cls`` or its class name; its attributes are its functions."""


@dataclass(frozen=True)
class Macro:
    """A macro (``@T.macro``): its definition, the source of the definition, and the names visible there."""

    node: ast.FunctionDef
    source: Source
    around: Surroundings

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Bind arguments to parameter names. Raises TypeError for missing, extra or unknown arguments."""
        names = [a.arg for a in self.node.args.args]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) > len(names) or set(given) != set(names):
            raise TypeError(f"{self.node.name} takes ({', '.join(names)}); got {len(args) + len(kwargs)} arguments")
        return given


PYTHON_VALUES = (bool, int, float, str, tuple, list, dict, type(None), np.generic, np.ndarray, FunctionType, Macro)

NAMESPACES: Mapping[str, Namespace] = {
    "T": Namespace("T"),
    "R": Namespace("R"),
    "I": Namespace("I"),
    "relax": Namespace("R"),
    "tir": Namespace("T"),
    "tirx": Namespace("T"),
    "range": Namespace("T.range"),
    "Tensor": Namespace("R.Tensor"),
    "Object": Namespace("R.Object"),
    "meta": Namespace("metadata"),
    "metadata": Namespace("metadata"),
    "float": Namespace("float"),
    "int": Namespace("int"),
    "len": Namespace("len"),
    "min": Namespace("T.min"),
    "max": Namespace("T.max"),
}
_IMPORTED = {"tir": "T", "tirx": "T", "T": "T", "relax": "R", "R": "R", "ir": "I", "I": "I"}


@dataclass(frozen=True)
class Surroundings:
    """The names around functions: import aliases, free symbolic sizes, functions of the module, Python variables."""

    namespaces: Mapping[str, Namespace]
    type_vars: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    module_names: frozenset[str] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)

    def lookup(self, name: str) -> Any:
        """The value of a name that is defined outside functions; None when it is unknown."""
        if name in self.functions:
            return GlobalVar(name)
        if name in self.module_names:
            return ModuleName()
        if name in self.values and isinstance(self.values[name], PYTHON_VALUES):
            return self.values[name]
        return self.namespaces.get(name)


def import_aliases(node: ast.stmt) -> dict[str, Namespace]:
    """The namespaces that an import statement defines, such as ``from tvm.script import tir as T``."""
    if not isinstance(node, ast.ImportFrom):
        return {}
    return {a.asname or a.name: Namespace(_IMPORTED[a.name]) for a in node.names if a.name in _IMPORTED}


class Scope:
    """The names defined inside a function, by suite; ``symbols`` are visible in the whole function."""

    def __init__(self, around: Surroundings):
        self.around = around
        self.symbols: dict[str, Var] = {}
        self.notes: dict[str, str] = {}
        """Error messages for names that are out of scope."""
        self._frames: list[dict[str, Any]] = [{}]
        self._loops: list[int] = []

    def define(self, name: str, value: Any) -> None:
        self._frames[-1][name] = value

    def symbol(self, name: str, dtype: str = "int64") -> Var:
        """The symbolic size called ``name``, created at its first use."""
        return self.symbols.setdefault(name, Var(name, dtype))

    def find(self, name: str) -> tuple[bool, Any]:
        """Look up ``name``: whether it is defined, and its value."""
        for frame in reversed(self._frames):
            if name in frame:
                return True, frame[name]
        if name in self.symbols:
            return True, self.symbols[name]
        if name in self.around.type_vars:
            return True, self.symbol(name)
        value = self.around.lookup(name)
        known = value is not None or name in self.around.values
        return known, value

    def is_loop_carried(self, name: str) -> bool:
        """Whether ``name`` was defined outside the innermost loop: an assignment inside would not update it."""
        inside = self._frames[self._loops[-1] :] if self._loops else self._frames
        return any(name in f for f in self._frames) and not any(name in f for f in inside)

    def similar(self, name: str) -> str | None:
        names = [n for f in self._frames for n in f] + [*self.symbols, *self.around.functions]
        close = difflib.get_close_matches(name, names, 1)
        return f"did you mean {close[0]!r}?" if close else None

    @contextmanager
    def nested(self, loop: bool = False) -> Iterator[None]:
        """Context manager of a nested suite (``loop``: a loop body), whose definitions are removed at its end."""
        if loop:
            self._loops.append(len(self._frames))
        self._frames.append({})
        yield
        self._frames.pop()
        if loop:
            self._loops.pop()
