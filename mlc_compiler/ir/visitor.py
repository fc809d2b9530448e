"""Traversal of IR trees. Nodes are frozen dataclasses; tuples, lists and dicts in their fields are traversed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .expr import BinaryOp, Cast, PrimExpr, Var, binary, cast

_LEAVES = frozenset({str, int, float, bool, type(None)})
_field_names: dict[type, tuple[str, ...]] = {}


def field_names(cls: type) -> tuple[str, ...]:
    """Names of a node class's fields, in order."""
    if cls not in _field_names:
        _field_names[cls] = tuple(f.name for f in fields(cls))
    return _field_names[cls]


_inner_names: dict[type, tuple[str, ...]] = {}


def _inner_fields(cls: type) -> tuple[str, ...]:
    """Names of the fields that can hold nodes: all but strings and numbers."""
    if cls not in _inner_names:
        _inner_names[cls] = tuple(f.name for f in fields(cls) if f.type not in ("str", "int", "float", "bool"))
    return _inner_names[cls]


_kinds: dict[type, str] = {}


def _kind(cls: type) -> str:
    """How values of a class are traversed: as "leaf", "sequence", "mapping", "node" (with fields) or "other"."""
    if cls not in _kinds:
        groups = {"leaf": (str, int, float, type(None)), "sequence": (tuple, list), "mapping": (Mapping,)}
        other = "node" if is_dataclass(cls) else "other"
        _kinds[cls] = next((name for name, group in groups.items() if issubclass(cls, group)), other)
    return _kinds[cls]


def children(node: Any) -> Iterator[Any]:
    """The values directly inside a node, in field order; strings and numbers included."""
    kind = _kind(type(node))
    if kind == "sequence":
        yield from node
    elif kind == "mapping":
        yield from node.values()
    elif kind == "node":
        for name in field_names(type(node)):
            yield getattr(node, name)


def walk(node: Any) -> Iterator[Any]:
    """Every node of the tree, parents first. Shared subtrees are visited once for each use."""
    stack = [node]
    while stack:
        item = stack.pop()
        cls = type(item)
        kind = _kinds.get(cls) or _kind(cls)
        if kind == "node":
            yield item
            stack += [getattr(item, name) for name in reversed(_inner_fields(cls))]
        elif kind == "sequence":
            stack += reversed(item)
        elif kind == "mapping":
            stack += reversed(item.values())
        elif kind == "other":
            yield item


def depth(node: Any) -> int:
    """The maximum number of nested nodes. A subtree shared by several nodes of a level is visited once."""
    deepest, level = 0, _outermost_nodes([node])
    while level:
        deepest += 1
        inside = [getattr(item, name) for item in level for name in _inner_fields(type(item))]
        level = _outermost_nodes(inside)
    return deepest


def _outermost_nodes(values: list[Any]) -> list[Any]:
    """The distinct nodes in ``values``, including those in nested sequences and mappings."""
    found, stack = {}, values
    while stack:
        item = stack.pop()
        kind = _kind(type(item))
        if kind == "node":
            found[id(item)] = item
        elif kind == "sequence":
            stack += item
        elif kind == "mapping":
            stack += item.values()
    return list(found.values())


class Rewriter:
    """Rebuilds a tree bottom-up. A subclass defines ``rewrite_NodeName(node)`` for the nodes that it changes.

    ``rewrite_children(node)`` returns the node with rewritten children, or the same object when none changed.
    """

    def __call__(self, node: Any) -> Any:
        cls = type(node)
        if cls in _LEAVES:
            return node
        method = _rewrite_method(type(self), cls)
        return self.rewrite_children(node) if method is None else method(self, node)

    def rewrite_children(self, node: Any) -> Any:
        kind = _kind(type(node))
        if kind == "node":
            return self._fields(node)
        if kind == "sequence":
            items = [self(item) for item in node]
            return node if all(map(operator.is_, items, node)) else type(node)(items)
        if kind == "mapping":
            mapped = {k: self(v) for k, v in node.items()}
            return node if all(mapped[k] is v for k, v in node.items()) else mapped
        return node

    def _fields(self, node: Any) -> Any:
        cls, changed = type(node), {}
        for name in _inner_fields(cls):
            old = getattr(node, name)
            new = self(old)
            if new is not old:
                changed[name] = new
        if not changed:
            return node
        return cls(*[changed[n] if n in changed else getattr(node, n) for n in field_names(cls)])


_rewrite_methods: dict[tuple[type, type], Callable[[Any, Any], Any] | None] = {}


def _rewrite_method(rewriter: type, cls: type) -> Callable[[Any, Any], Any] | None:
    """The method ``rewrite_NodeName`` of a rewriter class for nodes of class ``cls``; None when it has none."""
    if (rewriter, cls) not in _rewrite_methods:
        name = f"rewrite_{cls.__name__}"
        known = getattr(rewriter, name, None) if _kind(cls) in ("node", "other") else None
        _rewrite_methods[rewriter, cls] = known
    return _rewrite_methods[rewriter, cls]


class Substitute(Rewriter):
    """Replaces the objects (variables, buffers) that are keys of ``mapping``, by identity.

    A buffer whose sizes change is replaced by one new buffer at all of its uses.
    """

    def __init__(self, mapping: Mapping[Any, Any]):
        self.mapping = {id(k): v for k, v in mapping.items()}

    def __call__(self, node: Any) -> Any:
        if id(node) in self.mapping:
            return self.mapping[id(node)]
        result = super().__call__(node)
        if result is not node and getattr(node, "binds_by_identity", False):
            self.mapping[id(node)] = result
        return result

    def rewrite_BinaryOp(self, node: BinaryOp) -> PrimExpr:
        a, b = self(node.a), self(node.b)
        return node if a is node.a and b is node.b else binary(node.op, a, b)

    def rewrite_Cast(self, node: Cast) -> PrimExpr:
        value = self(node.value)
        return node if value is node.value else cast(node.dtype, value)


def substitute(node: Any, mapping: Mapping[Any, Any]) -> Any:
    """``node`` with every occurrence of a key (by identity) replaced by its value."""
    return Substitute(mapping)(node) if mapping else node


def free_vars(node: Any, keep: Callable[[Var], bool] = lambda _: True) -> list[Var]:
    """All distinct variables that occur in an expression, in order of first occurrence."""
    seen: dict[int, Var] = {}
    for item in walk(node):
        if isinstance(item, Var) and keep(item):
            seen.setdefault(id(item), item)
    return list(seen.values())


def uses(node: Any, var: PrimExpr) -> bool:
    """Whether ``var`` (by identity) occurs in ``node``."""
    return any(item is var for item in walk(node))
