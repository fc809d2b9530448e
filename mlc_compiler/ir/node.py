"""The class decorator of IR nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

Node = TypeVar("Node")

_ABSENT = object()


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
def node(cls: type[Node]) -> type[Node]:
    """Make a class a frozen dataclass with slots, whose values are compared by identity.

    Its constructor writes to the slots, which takes less than half the time of a frozen dataclass's own constructor:
    passes create hundreds of thousands of nodes.
    """
    made = dataclass(frozen=True, eq=False, slots=True, init=False)(cls)
    made.__init__ = _constructor(made)  # type: ignore[method-assign]
    return made


def _constructor(cls: Any) -> Callable[..., None]:
    """``__init__`` as dataclasses define it: fields are parameters in order, with their defaults."""
    names: dict[str, Any] = {"_ABSENT": _ABSENT}
    parameters, body = ["self"], []
    for item in fields(cls):
        name = item.name
        names[f"_set_{name}"] = getattr(cls, name).__set__
        value, default = name, item.default
        if item.default_factory is not MISSING:
            names[f"_make_{name}"] = item.default_factory
            value, default = f"_make_{name}() if {name} is _ABSENT else {name}", _ABSENT
        if default is not MISSING:
            names[f"_default_{name}"] = default
        parameters.append(name if default is MISSING else f"{name}=_default_{name}")
        body.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
