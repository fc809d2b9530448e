"""Structural equality: equal trees, operators and constants, and a one-to-one mapping of variables and buffers.

Class variables of a node configure it: ``defines`` names the fields that hold the variables and buffers this node binds
(the same loop variable may be bound by two loops); ``is_closed`` marks functions, which share no variables with other
functions; ``binds_by_identity`` marks nodes that are mapped like variables; ``not_compared`` names ignored fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from .expr import FloatImm, Var
from .recursion import deep_recursion
from .visitor import field_names


@dataclass(frozen=True)
class _Traits:
    """Values of a node class's class variables (see above); ``fields``: the names of the fields that are compared."""

    fields: tuple[str, ...]
    defines: tuple[str, ...]
    by_identity: bool
    is_closed: bool

    @staticmethod
    def of(cls: type) -> _Traits:
        by_identity = issubclass(cls, Var) or getattr(cls, "binds_by_identity", False)
        ignored = (*getattr(cls, "not_compared", ()), *(("name",) if by_identity else ()))
        compared = tuple(name for name in field_names(cls) if name not in ignored)
        return _Traits(compared, getattr(cls, "defines", ()), by_identity, getattr(cls, "is_closed", False))

    def defined(self, node: Any) -> list[Any]:
        """The variables and buffers that ``node`` binds."""
        found: list[Any] = []
        for name in self.defines:
            value = getattr(node, name)
            found += value if isinstance(value, tuple) else [value]
        return found


class _TraitsOf(dict[type, _Traits | None]):
    """Table of the traits of each node class; None for other classes."""

    def __missing__(self, cls: type) -> _Traits | None:
        self[cls] = found = _Traits.of(cls) if is_dataclass(cls) else None
        return found


_traits = _TraitsOf()


class _Matcher:
    """Compares two trees. Where they differ, ``path`` has the steps to the difference, the innermost one first."""

    def __init__(self) -> None:
        self.left: dict[int, Any] = {}
        self.right: dict[int, Any] = {}
        self.keep: list[Any] = []
        self.path: list[str] = []
        self.why = ""

    @property
    def mismatch(self) -> str:
        """The path to the difference, and both values."""
        return f"{''.join(reversed(self.path)).removeprefix('.') or 'root'}: {self.why}"

    def fail(self, why: str) -> bool:
        self.why = why
        return False

    def pair(self, a: Any, b: Any) -> bool | None:
        """Whether a and b are mapped to each other; when both are new, map them and return None."""
        if id(a) in self.left or id(b) in self.right:
            return self.left.get(id(a)) is b and self.right.get(id(b)) is a
        self.left[id(a)], self.right[id(b)] = b, a
        self.keep += [a, b]
        return None

    def equal(self, a: Any, b: Any) -> bool:
        if type(a) is not type(b):
            return self.fail(f"{type(a).__name__} is not {type(b).__name__}")
        traits = _traits[type(a)]
        if traits is not None:
            return self._nodes(a, b, traits)
        if isinstance(a, tuple | list):
            return self._sequences(a, b)
        if isinstance(a, np.ndarray):
            same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            return same or self.fail("constants differ")
        if isinstance(a, Mapping):
            return self._mappings(a, b)
        same = repr(a) == repr(b) if isinstance(a, float) else bool(a == b)
        return same or self.fail(f"{a!r} is not {b!r}")

    def _sequences(self, a: Any, b: Any) -> bool:
        if len(a) != len(b):
            return self.fail(f"{len(a)} items, not {len(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if not self.equal(x, y):
                self.path.append(f"[{i}]")
                return False
        return True

    def _mappings(self, a: Any, b: Any) -> bool:
        if set(a) != set(b):
            return self.fail(f"keys {sorted(map(str, a))} are not {sorted(map(str, b))}")
        for name in a:
            if not self.equal(a[name], b[name]):
                self.path.append(f".{name}")
                return False
        return True

    def _nodes(self, a: Any, b: Any, traits: _Traits) -> bool:
        if isinstance(a, FloatImm):
            same = a.dtype == b.dtype and repr(a.value) == repr(b.value)  # -0.0 differs from 0.0, NaN equals NaN
            return same or self.fail(f"{a} is not {b}")
        if traits.by_identity:
            paired = self.pair(a, b)
            if paired is not None:
                return paired or self.fail(f"{a.name} is not {b.name}")
        if traits.defines:
            for x, y in zip(traits.defined(a), traits.defined(b)):
                self.left.pop(id(x), None)
                self.right.pop(id(y), None)
        outer = self.left, self.right
        if traits.is_closed:
            self.left, self.right = {}, {}
        same = self._fields(a, b, traits)
        self.left, self.right = outer
        return same

    def _fields(self, a: Any, b: Any, traits: _Traits) -> bool:
        for name in traits.fields:
            if not self.equal(getattr(a, name), getattr(b, name)):
                self.path.append(f".{name}")
                return False
        return True


@deep_recursion
def structural_equal(a: Any, b: Any) -> bool:
    """Whether two expressions, statements, functions or modules are equal up to names of variables and buffers.

    Printing and parsing a module gives a structurally equal one. ``first_difference`` locates a difference.
    """
    return a is b or _Matcher().equal(a, b)


@deep_recursion
def first_difference(a: Any, b: Any) -> str | None:
    """The first difference of two trees, as a path with both values; None when they are structurally equal."""
    matcher = _Matcher()
    return None if matcher.equal(a, b) else matcher.mismatch


class _Key:
    """Serializes a tree to a flat list of tokens. Types and lengths are included, so different trees differ."""

    def __init__(self, by_identity: bool):
        self.by_identity = by_identity
        self.numbers: dict[int, int] = {}
        self.count = 0
        self.tokens: list[Any] = []

    def add(self, node: Any) -> None:
        cls = type(node)
        if cls is str or node is None:
            self.tokens.append(node)
        elif (traits := _traits[cls]) is not None:
            self._node(node, traits)
        elif isinstance(node, tuple | list):
            self.tokens += (cls, len(node))
            for item in node:
                self.add(item)
        elif isinstance(node, bool | int | float):
            self.tokens += (cls, repr(node))
        elif isinstance(node, Mapping):
            self._mapping(node)
        elif isinstance(node, np.ndarray):
            self.tokens += ("array", str(node.dtype), node.shape, hashlib.sha256(node.tobytes()).digest())
        else:
            self.tokens.append(node)

    def _mapping(self, node: Mapping[Any, Any]) -> None:
        self.tokens += (dict, len(node))
        for name in sorted(node, key=str):
            self.tokens.append(name)
            self.add(node[name])

    def _node(self, node: Any, traits: _Traits) -> None:
        self.tokens.append(type(node))
        if traits.by_identity and self._is_known(node):
            return
        if traits.defines:
            for var in traits.defined(node):
                self.numbers.pop(id(var), None)
        outer = self.numbers
        if traits.is_closed:
            self.numbers = {}
        for name in traits.fields:
            self.add(getattr(node, name))
        self.numbers = outer

    def _is_known(self, node: Any) -> bool:
        """Add the token of a variable or buffer; return whether its fields need no tokens."""
        if self.by_identity:
            self.tokens.append(id(node))
            return True
        known = id(node) in self.numbers
        if not known:
            self.count += 1
            self.numbers[id(node)] = self.count
        self.tokens.append(self.numbers[id(node)])
        return known


def structural_key(node: Any, by_identity: bool = False) -> Hashable:
    """A hashable value that is equal for two trees iff they are structurally equal.

    ``by_identity``: variables and buffers are compared by ``id`` instead of by order of first occurrence. Such keys
    compare expressions of the same function, and are valid while that function is alive.
    """
    key = _Key(by_identity)
    key.add(node)
    return tuple(key.tokens)


@deep_recursion
def structural_hash(node: Any) -> str:
    """64 hexadecimal digits that are equal for structurally equal trees, in any process."""
    key = _Key(by_identity=False)
    key.add(node)
    text = "\n".join(token.__qualname__ if isinstance(token, type) else repr(token) for token in key.tokens)
    return hashlib.sha256(text.encode()).hexdigest()
