"""Traversal of any IR tree. Nodes are frozen dataclasses; tuples, lists and dicts of nodes are walked through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from .expr import BinaryOp, Cast, PrimExpr, Var, binary, cast

_LEAVES = (str, int, float, bool, type(None))


_field_names: dict[type, tuple[str, ...]] = {}


def field_names(cls: type) -> tuple[str, ...]:
    """Names of a node class's fields, in order."""
    if cls not in _field_names:
        _field_names[cls] = tuple(f.name for f in fields(cls))
    return _field_names[cls]


def children(node: Any) -> Iterator[Any]:
    """The values directly inside a node, in field order; strings and numbers included."""
    if isinstance(node, tuple | list):
        yield from node
    elif isinstance(node, Mapping):
        yield from node.values()
    elif is_dataclass(node):
        for name in field_names(type(node)):
            yield getattr(node, name)


def walk(node: Any) -> Iterator[Any]:
    """Every node of the tree, parents first. Shared subtrees are visited once for each use."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, _LEAVES):
            continue
        if not isinstance(item, tuple | list | Mapping):
            yield item
        stack.extend(reversed([c for c in children(item) if not isinstance(c, _LEAVES)]))


class Rewriter:
    """Rebuilds a tree bottom-up. A subclass defines ``rewrite_NodeName(node)`` for the nodes that it changes.

    ``rewrite_children(node)`` gives the node with rewritten children, and the very same object when none changed.
    """

    def __call__(self, node: Any) -> Any:
        if isinstance(node, _LEAVES):
            return node
        if isinstance(node, tuple | list | Mapping):
            return self.rewrite_children(node)
        method = getattr(self, f"rewrite_{type(node).__name__}", None)
        return method(node) if method else self.rewrite_children(node)

    def rewrite_children(self, node: Any) -> Any:
        if isinstance(node, tuple | list):
            items = [self(item) for item in node]
            return node if all(a is b for a, b in zip(items, node, strict=True)) else type(node)(items)
        if isinstance(node, Mapping):
            mapped = {k: self(v) for k, v in node.items()}
            return node if all(mapped[k] is v for k, v in node.items()) else mapped
        if not is_dataclass(node):
            return node
        changed = {}
        for name in field_names(type(node)):
            old = getattr(node, name)
            new = self(old)
            if new is not old:
                changed[name] = new
        return replace(node, **changed) if changed else node  # type: ignore[type-var]


class Substitute(Rewriter):
    """Replaces objects (variables, buffers) found as keys of ``mapping``, by identity."""

    def __init__(self, mapping: Mapping[Any, Any]):
        self.mapping = {id(k): v for k, v in mapping.items()}

    def __call__(self, node: Any) -> Any:
        if id(node) in self.mapping:
            return self.mapping[id(node)]
        return super().__call__(node)

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
