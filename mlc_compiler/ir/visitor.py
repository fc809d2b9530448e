"""Traversal of IR trees. Nodes are frozen dataclasses; tuples, lists and dicts in their fields are traversed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter, is_
from typing import Any

from .expr import BinaryOp, Cast, PrimExpr, Var, binary, cast

_field_names: dict[type, tuple[str, ...]] = {}


def field_names(cls: type) -> tuple[str, ...]:
    """Names of a node class's fields, in order."""
    if cls not in _field_names:
        _field_names[cls] = tuple(f.name for f in fields(cls))
    return _field_names[cls]


Values = tuple[Any, ...]


def _getter(names: list[str]) -> Callable[[Any], Values]:
    """A function that gives the attributes with these names as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda node: (getattr(node, names[0]),)) if names else (lambda _: ())


_inner_names: dict[type, list[str]] = {}


def _inner_fields(cls: type) -> list[str]:
    """Names of the fields that can hold nodes: all but strings and numbers."""
    if cls not in _inner_names:
        _inner_names[cls] = [f.name for f in fields(cls) if f.type not in ("str", "int", "float", "bool")]
    return _inner_names[cls]


_traversals: dict[type, tuple[str, Callable[[Any], Values]]] = {}


def _traversal(cls: type) -> tuple[str, Callable[[Any], Values]]:
    """How values of a class are traversed: as "leaf", "sequence", "mapping", "node" (with fields) or "other".

    With a function that gives the values inside one that can hold nodes.
    """
    if cls not in _traversals:
        found: tuple[str, Callable[[Any], Values]] = ("other", lambda _: ())
        if issubclass(cls, str | int | float | type(None)):
            found = "leaf", lambda _: ()
        elif issubclass(cls, tuple | list):
            found = "sequence", tuple
        elif issubclass(cls, Mapping):
            found = "mapping", lambda mapping: tuple(mapping.values())
        elif is_dataclass(cls):
            found = "node", _getter(_inner_fields(cls))
        _traversals[cls] = found
    return _traversals[cls]


def children(node: Any) -> Iterator[Any]:
    """The values directly inside a node, in field order; strings and numbers included."""
    kind, inner = _traversal(type(node))
    if kind == "node":
        for name in field_names(type(node)):
            yield getattr(node, name)
    else:
        yield from inner(node)


def walk(node: Any) -> Iterator[Any]:
    """Every node of the tree, parents first. Shared subtrees are visited once for each use."""
    stack = [node]
    while stack:
        item = stack.pop()
        cls = type(item)
        kind, inner = _traversals.get(cls) or _traversal(cls)
        if kind == "leaf":
            continue
        if kind == "node" or kind == "other":
            yield item
        stack += inner(item)[::-1]


def depth(node: Any) -> int:
    """The maximum number of nested nodes. A subtree shared by several nodes of a level is visited once."""
    deepest, level = 0, _outermost_nodes([node])
    while level:
        deepest += 1
        level = _outermost_nodes([value for item in level for value in _traversal(type(item))[1](item)])
    return deepest


def _outermost_nodes(values: list[Any]) -> list[Any]:
    """The distinct nodes in ``values``, including those in nested sequences and mappings."""
    found, stack = {}, values
    while stack:
        item = stack.pop()
        kind, inner = _traversal(type(item))
        if kind == "node":
            found[id(item)] = item
        else:
            stack += inner(item)
    return list(found.values())


class Rewriter:
    """Rebuilds a tree bottom-up. A subclass defines ``rewrite_NodeName(node)`` for the nodes that it changes.

    ``rewrite_children(node)`` returns the node with rewritten children, or the same object when none changed.
    """

    def __call__(self, node: Any) -> Any:
        cls = type(node)
        return (_methods.get((type(self), cls)) or _method(type(self), cls))(self, node)

    def rewrite_children(self, node: Any) -> Any:
        kind, inner = _traversal(type(node))
        old = inner(node)
        new = tuple([self(value) for value in old])
        if all(map(is_, new, old)):
            return node
        if kind == "node":
            return _rebuilt(node, dict(zip(_inner_fields(type(node)), new, strict=True)))
        return dict(zip(node, new, strict=True)) if kind == "mapping" else type(node)(new)


def _rebuilt(node: Any, changed: Mapping[str, Any]) -> Any:
    cls = type(node)
    return cls(*[changed[name] if name in changed else getattr(node, name) for name in field_names(cls)])


Method = Callable[[Any, Any], Any]
_methods: dict[tuple[type, type], Method] = {}


def _method(rewriter: type, cls: type) -> Method:
    """The method of a rewriter class for values of class ``cls``: ``rewrite_NodeName``, or that for any node."""
    kind, _ = _traversal(cls)
    own: Method | None = getattr(rewriter, f"rewrite_{cls.__name__}", None) if kind in ("node", "other") else None
    generic: Method = _unchanged if kind == "leaf" else Rewriter.rewrite_children
    _methods[rewriter, cls] = found = own or generic
    return found


def _unchanged(_: Any, node: Any) -> Any:
    return node


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
