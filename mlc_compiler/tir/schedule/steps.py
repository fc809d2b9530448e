"""Steps of a schedule: methods whose arguments are checked and whose calls the trace records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import UnionType
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from ...ir.expr import Var
from ...ir.recursion import deep_recursion
from ..nodes import PrimFunc
from .trace import BlockName, Trace
from .tree import ScheduleError, child_blocks, find_loop, has_loop

_POSITIONAL = frozenset({"name", "block", "loop", "loops", "target"})
_names: set[str] = set()

Method = TypeVar("Method", bound=Callable[..., Any])


class Recorded(Protocol):
    """Interface of the class whose methods are schedule steps."""

    trace: Trace

    def home(self, at: Var | str) -> tuple[str, Var | str]: ...

    def function(self, name: str) -> PrimFunc: ...

    def get_loops(self, block: str) -> list[Var]: ...


def step_names() -> frozenset[str]:
    """The names of all steps."""
    return frozenset(_names)


def step(method: Method) -> Method:
    """Decorator: record calls of a method in the trace, blocks and loops as positional arguments, others as keywords.

    Raises ScheduleError for arguments that are not of the declared types.
    """
    signature = inspect.signature(method)
    _names.add(method.__name__)

    @wraps(method)
    @deep_recursion
    def recorded(self: Any, *args: Any, **keywords: Any) -> Any:
        bound = signature.bind(self, *args, **keywords)
        _check_types(method, signature, bound.arguments)
        given, named = _encoded(self, signature, bound.arguments)
        result = method(self, *args, **keywords)
        if "decision" in signature.parameters:
            result, named["decision"] = result
        self.trace.record(method.__name__, given, named, result)
        return result

    return recorded  # type: ignore[return-value]


# -- types --------------------------------------------------------------------------------------------------------

_hints = cache(get_type_hints)


def _check_types(method: Callable[..., Any], signature: inspect.Signature, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        hint = _hints(method).get(name, Any)
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        for item in values:
            if not _conforms(item, hint):
                raise ScheduleError(f"{method.__name__}: got {name} = {item!r}; expected {parameter.annotation}")


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value matches a type hint of classes, unions, sequences, tuples and callables."""
    if hint is Any:
        return True
    if get_origin(hint) in (Union, UnionType):
        return any(_conforms(value, h) for h in get_args(hint))
    if get_origin(hint) is Sequence:
        return isinstance(value, list | tuple) and all(_conforms(v, get_args(hint)[0]) for v in value)
    if get_origin(hint) is tuple:
        return isinstance(value, list | tuple) and all(map(_conforms, value, get_args(hint)))
    if get_origin(hint) is Callable:
        return callable(value)
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, hint)


# -- the trace ----------------------------------------------------------------------------------------------------


def _encoded(
    sch: Recorded, signature: inspect.Signature, arguments: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Encode the arguments of a step as data. A loop that no recorded step returned gets a ``get_loops`` step."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        if name == "self" or (parameter.default is not parameter.empty and value == parameter.default):
            continue
        for item in value if isinstance(value, list | tuple) else (value,):
            _introduce(sch, item)
        encoded = sch.trace.encode(value)
        if parameter.kind is parameter.VAR_POSITIONAL:
            given += encoded
        elif name in _POSITIONAL:
            given.append(encoded)
        else:
            named[name] = encoded
    return given, named


def _introduce(sch: Recorded, value: Any) -> None:
    if not isinstance(value, Var) or sch.trace.has_name(value):
        return
    func_name, _ = sch.home(value)
    func = sch.function(func_name)
    if has_loop(func, value):
        blocks = child_blocks(find_loop(func, value))
        if not blocks:
            raise ScheduleError(f"loop {value.name!r} holds no block: steps are about loops around blocks")
        sch.get_loops(BlockName(blocks[0], func_name))
