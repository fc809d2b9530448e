"""Checks of function attributes on which passes and code generation rely."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir.expr import IntImm
from ..relax.nodes import Function
from ..script.names import identifier
from ..tir.index_map import IndexMap
from ..tir.nodes import PrimFunc
from .errors import unknown_attribute

AnyFunction = Function | PrimFunc
Rule = tuple[Callable[[Any, AnyFunction], bool], str]
"""A predicate of the attribute's value and the function, and the expected value for the error message."""


def wrong_attribute(func: AnyFunction) -> str | None:
    """The error message for the first invalid attribute of a function; None when all are valid."""
    unknown = unknown_attribute(dict(func.attrs))
    if unknown is not None:
        return f"an attribute holds {unknown}; expected plain values or expressions"
    for name, (holds, expected) in _RULES.items():
        if name in func.attrs and not holds(func.attrs[name], func):
            return f"attribute {name!r} is {func.attrs[name]!r}; expected {expected}"
    return None


def _is_name(value: Any, func: AnyFunction) -> bool:
    return isinstance(value, str) and identifier(value) == value


def _counts_parameters(value: Any, func: AnyFunction) -> bool:
    return _is_number(value) and 0 <= int(value) <= len(func.params)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | IntImm)


def _are_bounds(value: Any, func: AnyFunction) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and _is_number(v) for k, v in value.items())


def _are_names(value: Any, func: AnyFunction) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)


def _are_layouts(value: Any, func: AnyFunction) -> bool:
    return isinstance(value, Mapping) and all(_is_layout(k, v, func) for k, v in value.items())


def _is_layout(position: Any, layout: Any, func: AnyFunction) -> bool:
    if not (isinstance(func, PrimFunc) and isinstance(layout, IndexMap) and isinstance(position, str)):
        return False
    buffer = func.buffers[int(position)] if position.isdecimal() and int(position) < len(func.buffers) else None
    return buffer is not None and len(layout.outputs) == len(buffer.shape)


_RULES: Mapping[str, Rule] = {
    "global_symbol": (_is_name, "a name"),
    "num_input": (_counts_parameters, "a number of parameters"),
    "num_outputs": (_counts_parameters, "a number of parameters"),
    "num_scratch": (_counts_parameters, "a number of parameters"),
    "op_pattern": (lambda value, func: isinstance(value, str) or _is_number(value), "a pattern's name"),
    "tir_var_upper_bound": (_are_bounds, "numbers by the names of sizes"),
    "tir_non_negative_var": (_are_names, "a list of the names of sizes"),
    "layouts": (_are_layouts, "{parameter: index map}, the parameters by position"),
}
