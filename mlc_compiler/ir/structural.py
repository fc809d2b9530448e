"""Structural equality: equal trees, operators and constants, and a one-to-one mapping of variables and buffers.

Class variables of a node configure it: ``defines`` names the fields that hold the variables and buffers this node binds
(the same loop variable may be bound by two loops); ``is_closed`` marks functions, which share no variables with other
functions; ``binds_by_identity`` marks nodes that are mapped like variables; ``not_compared`` names ignored fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from .expr import FloatImm, Var
from .recursion import deep_recursion
from .visitor import field_names


def _defined(node: Any) -> list[Any]:
    """The variables and buffers that ``node`` binds."""
    found: list[Any] = []
    for name in getattr(type(node), "defines", ()):
        value = getattr(node, name)
        found += value if isinstance(value, tuple) else [value]
    return found


class _Matcher:
    def __init__(self) -> None:
        self.left: dict[int, Any] = {}
        self.right: dict[int, Any] = {}
        self.keep: list[Any] = []
        self.mismatch = ""

    def fail(self, path: str, why: str) -> bool:
        self.mismatch = self.mismatch or f"{path or 'root'}: {why}"
        return False

    def pair(self, a: Any, b: Any) -> bool | None:
        """Whether a and b are mapped to each other; None when both are new, and maps them."""
        if id(a) in self.left or id(b) in self.right:
            return self.left.get(id(a)) is b and self.right.get(id(b)) is a
        self.left[id(a)], self.right[id(b)] = b, a
        self.keep += [a, b]
        return None

    def equal(self, a: Any, b: Any, path: str) -> bool:
        if type(a) is not type(b):
            return self.fail(path, f"{type(a).__name__} is not {type(b).__name__}")
        if isinstance(a, np.ndarray):
            same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            return same or self.fail(path, "constants differ")
        if isinstance(a, tuple | list):
            return self._sequences(a, b, path)
        if isinstance(a, Mapping):
            return self._mappings(a, b, path)
        if not is_dataclass(a):
            same = repr(a) == repr(b) if isinstance(a, float) else bool(a == b)
            return same or self.fail(path, f"{a!r} is not {b!r}")
        return self._nodes(a, b, path)

    def _sequences(self, a: Any, b: Any, path: str) -> bool:
        if len(a) != len(b):
            return self.fail(path, f"{len(a)} items, not {len(b)}")
        return all(self.equal(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)))

    def _mappings(self, a: Any, b: Any, path: str) -> bool:
        if set(a) != set(b):
            return self.fail(path, f"keys {sorted(map(str, a))} are not {sorted(map(str, b))}")
        return all(self.equal(a[k], b[k], f"{path}.{k}") for k in a)

    def _nodes(self, a: Any, b: Any, path: str) -> bool:
        if isinstance(a, FloatImm):
            same = a.dtype == b.dtype and repr(a.value) == repr(b.value)  # -0.0 differs from 0.0, NaN equals NaN
            return same or self.fail(path, f"{a} is not {b}")
        by_identity = getattr(type(a), "binds_by_identity", False) or isinstance(a, Var)
        if by_identity:
            paired = self.pair(a, b)
            if paired is not None:
                return paired or self.fail(path, f"{a.name} is not {b.name}")
        for x, y in zip(_defined(a), _defined(b)):
            self.left.pop(id(x), None)
            self.right.pop(id(y), None)
        outer = self.left, self.right
        if getattr(type(a), "is_closed", False):
            self.left, self.right = {}, {}
        same = self._fields(a, b, path, by_identity)
        self.left, self.right = outer
        return same

    def _fields(self, a: Any, b: Any, path: str, by_identity: bool) -> bool:
        skip = {"name"} if by_identity else set()
        names = [n for n in field_names(type(a)) if n not in skip and n not in getattr(type(a), "not_compared", ())]
        return all(self.equal(getattr(a, n), getattr(b, n), f"{path}.{n}" if path else n) for n in names)


@deep_recursion
def structural_equal(a: Any, b: Any) -> bool:
    """Whether two expressions, statements, functions or modules are equal up to names of variables and buffers.

    Printing and parsing a module gives a structurally equal one. ``first_difference`` locates a difference.
    """
    return a is b or _Matcher().equal(a, b, "")


@deep_recursion
def first_difference(a: Any, b: Any) -> str | None:
    """The first difference of two trees, as a path with both values; None when they are structurally equal."""
    matcher = _Matcher()
    return None if matcher.equal(a, b, "") else matcher.mismatch


class _Key:
    """Serializes a tree to a flat list of tokens. Types and lengths are included, so different trees differ."""

    def __init__(self, by_identity: bool):
        self.by_identity = by_identity
        self.numbers: dict[int, int] = {}
        self.count = 0
        self.tokens: list[Any] = []

    def add(self, node: Any) -> None:
        if isinstance(node, str | type(None)):
            self.tokens.append(node)
        elif isinstance(node, bool | int | float):
            self.tokens += [type(node), repr(node)]
        elif isinstance(node, tuple | list):
            self.tokens += (type(node), len(node))
            for item in node:
                self.add(item)
        elif isinstance(node, Mapping):
            self._mapping(node)
        elif isinstance(node, np.ndarray):
            self.tokens += ("array", str(node.dtype), node.shape, hashlib.sha256(node.tobytes()).digest())
        else:
            self._node(node)

    def _mapping(self, node: Mapping[Any, Any]) -> None:
        self.tokens += (dict, len(node))
        for name in sorted(node, key=str):
            self.tokens.append(name)
            self.add(node[name])

    def _node(self, node: Any) -> None:
        cls = type(node)
        if not is_dataclass(cls):
            self.tokens.append(node)
            return
        self.tokens.append(cls)
        skip: tuple[str, ...] = getattr(cls, "not_compared", ())
        if isinstance(node, Var) or getattr(cls, "binds_by_identity", False):
            if self.by_identity:
                self.tokens.append(id(node))
                return
            known = id(node) in self.numbers
            if not known:
                self.count += 1
                self.numbers[id(node)] = self.count
            self.tokens.append(self.numbers[id(node)])
            if known:
                return
            skip = (*skip, "name")
        for var in _defined(node):
            self.numbers.pop(id(var), None)
        outer = self.numbers
        if getattr(cls, "is_closed", False):
            self.numbers = {}
        for name in field_names(cls):
            if name not in skip:
                self.add(getattr(node, name))
        self.numbers = outer


def structural_key(node: Any, by_identity: bool = False) -> Hashable:
    """A hashable value that is equal for two trees iff they are structurally equal.

    ``by_identity``: variables and buffers are compared by ``id`` instead of by order of first occurrence. Such keys
    compare expressions of the same function, and are valid while that function is alive.
    """
    key = _Key(by_identity)
    key.add(node)
    return tuple(key.tokens)
