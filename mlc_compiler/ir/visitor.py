"""Traversal of IR trees. Nodes are frozen dataclasses; tuples, lists and dicts in their fields are traversed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter, is_, itemgetter
from typing import Any, ClassVar, NamedTuple, TypeVar

from .expr import BinaryOp, Cast, PrimExpr, Var, binary, cast

_field_names: dict[type, tuple[str, ...]] = {}


def field_names(cls: type) -> tuple[str, ...]:
    """Names of a node class's fields, in order."""
    if cls not in _field_names:
        _field_names[cls] = tuple(f.name for f in fields(cls))
    return _field_names[cls]


Values = tuple[Any, ...]
Getter = Callable[[Any], Values]


def _getter(names: list[str]) -> Getter:
    """Return a function that gets the attributes with these names as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda node: (getattr(node, names[0]),)) if names else (lambda _: ())


_inner_names: dict[type, list[str]] = {}


def _inner_fields(cls: type) -> list[str]:
    """Names of the fields that can hold nodes: all but strings and numbers."""
    if cls not in _inner_names:
        _inner_names[cls] = [f.name for f in fields(cls) if f.type not in ("str", "int", "float", "bool")]
    return _inner_names[cls]


class _Traversal(NamedTuple):
    """How values of a class are traversed: as "leaf", "sequence", "mapping", "node" (with fields) or "other".

    inner: gets the contained values that can hold nodes. backwards: the same in reverse order; None where there are
    none.
    """

    kind: str
    inner: Getter
    backwards: Getter | None

    @property
    def is_node(self) -> bool:
        """Whether ``walk`` yields values of the class."""
        return self.kind in ("node", "other")


_NOTHING_INSIDE: Getter = lambda _: ()  # noqa: E731
_REVERSED: Getter = itemgetter(slice(None, None, -1))


class _Traversals(dict[type, _Traversal]):
    """Table of the traversal of each class, filled on first use."""

    def __missing__(self, cls: type) -> _Traversal:
        self[cls] = found = self._of(cls)
        return found

    @staticmethod
    def _of(cls: type) -> _Traversal:
        if issubclass(cls, str | int | float | type(None)):
            return _Traversal("leaf", _NOTHING_INSIDE, None)
        if issubclass(cls, tuple | list):
            return _Traversal("sequence", tuple, _REVERSED)
        if issubclass(cls, Mapping):
            return _Traversal("mapping", lambda m: tuple(m.values()), lambda m: tuple(m.values())[::-1])
        if not is_dataclass(cls):
            return _Traversal("other", _NOTHING_INSIDE, None)
        names = _inner_fields(cls)
        return _Traversal("node", _getter(names), _getter(names[::-1]) if names else None)


_traversals = _Traversals()


def children(node: Any) -> Iterator[Any]:
    """The values directly inside a node, in field order; strings and numbers included."""
    traversal = _traversals[type(node)]
    if traversal.kind == "node":
        for name in field_names(type(node)):
            yield getattr(node, name)
    else:
        yield from traversal.inner(node)


class _Steps(dict[type, tuple[bool, Getter | None]]):
    """Table for ``walk``: whether it yields values of a class, and the getter of their contents in reverse order."""

    def __missing__(self, cls: type) -> tuple[bool, Getter | None]:
        traversal = _traversals[cls]
        self[cls] = step = traversal.is_node, traversal.backwards
        return step


_steps = _Steps()


def walk(node: Any) -> Iterator[Any]:
    """Yield every node of the tree, parents first. Shared subtrees are visited once for each use."""
    stack = [node]
    while stack:
        item = stack.pop()
        is_node, backwards = _steps[type(item)]
        if is_node:
            yield item
        if backwards is not None:
            stack += backwards(item)


class _Search(dict[type, tuple[bool, Getter | None]]):
    """Table for ``nodes_of``: whether a class is searched for, and the getter of what its values contain, reversed."""

    def __init__(self, kinds: tuple[type, ...]):
        self.kinds = kinds
        self.enters_expressions = any(issubclass(kind, PrimExpr) for kind in kinds)

    def __missing__(self, cls: type) -> tuple[bool, Getter | None]:
        entered = self.enters_expressions or not issubclass(cls, PrimExpr)
        self[cls] = step = issubclass(cls, self.kinds), _traversals[cls].backwards if entered else None
        return step


_searches: dict[tuple[type, ...], _Search] = {}

Node = TypeVar("Node")


def nodes_of(node: Any, *kinds: type[Node]) -> list[Node]:
    """The nodes of some classes in a tree, in the order of ``walk``, which is slower.

    kinds: classes of expressions, or of what only statements contain; expressions are not entered for the latter.
    """
    search = _searches.get(kinds)
    if search is None:
        search = _searches[kinds] = _Search(kinds)
    found, stack = [], [node]
    while stack:
        item = stack.pop()
        wanted, backwards = search[type(item)]
        if wanted:
            found.append(item)
        if backwards is not None:
            stack += backwards(item)
    return found


def depth(node: Any) -> int:
    """The maximum number of nested nodes. A subtree shared by several nodes of a level is visited once."""
    deepest, level = 0, _outermost_nodes([node])
    while level:
        deepest += 1
        level = _outermost_nodes([value for item in level for value in _traversals[type(item)].inner(item)])
    return deepest


def _outermost_nodes(values: list[Any]) -> list[Any]:
    """The distinct nodes in ``values``, including those in nested sequences and mappings."""
    found, stack = {}, values
    while stack:
        item = stack.pop()
        traversal = _traversals[type(item)]
        if traversal.kind == "node":
            found[id(item)] = item
        else:
            stack += traversal.inner(item)
    return list(found.values())


Method = Callable[[Any, Any], Any]


class _Methods(dict[type, Method]):
    """Table of a rewriter class: the method for values of each class, ``rewrite_NodeName`` or the generic one."""

    def __init__(self, rewriter: type):
        self.rewriter = rewriter

    def __missing__(self, cls: type) -> Method:
        is_node = _traversals[cls].is_node
        own: Method | None = getattr(self.rewriter, f"rewrite_{cls.__name__}", None) if is_node else None
        self[cls] = found = own or _rebuilders[cls]
        return found


class Rewriter:
    """Rebuilds a tree bottom-up. A subclass defines ``rewrite_NodeName(node)`` for the nodes that it changes.

    ``rewrite_children(node)`` returns the node with rewritten children, or the same object when none changed.
    """

    _methods: ClassVar[_Methods]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = _Methods(cls)

    def __call__(self, node: Any) -> Any:
        return self._methods[type(node)](self, node)

    def rewrite_children(self, node: Any) -> Any:
        return _rebuilders[type(node)](self, node)


def _unchanged(_: Any, node: Any) -> Any:
    return node


def _rewrite_items(rewrite: Any, items: Any) -> Any:
    new = [rewrite(item) for item in items]
    return items if all(map(is_, new, items)) else type(items)(new)


def _rewrite_values(rewrite: Any, mapping: Any) -> Any:
    new = [rewrite(value) for value in mapping.values()]
    return mapping if all(map(is_, new, mapping.values())) else dict(zip(mapping, new, strict=True))


def _rewrite_fields(cls: type) -> Method:
    """Return the method for nodes of a class: it rewrites their fields, and returns the same node when none changed."""
    names, inner, get = field_names(cls), _inner_fields(cls), _traversals[cls].inner

    def method(rewrite: Any, node: Any) -> Any:
        old = get(node)
        new = [rewrite(value) for value in old]
        if all(map(is_, new, old)):
            return node
        changed = dict(zip(inner, new, strict=True))
        return cls(*[changed[name] if name in changed else getattr(node, name) for name in names])

    return method if inner else _unchanged


class _Rebuilders(dict[type, Method]):
    """Table from a class to the function ``(rewriter, value)`` that rewrites the contents of its values."""

    def __missing__(self, cls: type) -> Method:
        of_kind = {"sequence": _rewrite_items, "mapping": _rewrite_values}
        kind = _traversals[cls].kind
        self[cls] = found = _rewrite_fields(cls) if kind == "node" else of_kind.get(kind, _unchanged)
        return found


_rebuilders = _Rebuilders()


class Substitute(Rewriter):
    """Replaces the objects (variables, buffers) that are keys of ``mapping``, by identity.

    A buffer whose sizes change is replaced by one new buffer at all of its uses.
    """

    def __init__(self, mapping: Mapping[Any, Any]):
        self.mapping = {id(k): v for k, v in mapping.items()}

    def __call__(self, node: Any) -> Any:
        if id(node) in self.mapping:
            return self.mapping[id(node)]
        result = self._methods[type(node)](self, node)
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
    """The distinct variables in an expression for which ``keep`` is true, in order of first occurrence."""
    distinct = {id(var): var for var in nodes_of(node, Var)}
    return [var for var in distinct.values() if keep(var)]


def uses(node: Any, var: PrimExpr) -> bool:
    """Whether ``var`` (by identity) occurs in ``node``."""
    return any(item is var for item in nodes_of(node, type(var)))
