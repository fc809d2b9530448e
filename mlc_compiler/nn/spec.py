"""Specifications of exported functions: their inputs, with symbolic sizes by name, and how weights are passed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlc_errors import MLCError


class SpecError(MLCError, ValueError):
    """A spec that does not match the module."""


PARAM_MODES = ("packed", "plain", "none")
EFFECT_MODES = ("packed", "plain", "none")


@dataclass(frozen=True)
class Tensor:
    """A tensor input; a size is an integer or the name of a symbolic size, shared within the function."""

    shape: Sequence[int | str]
    dtype: str = "float32"


@dataclass(frozen=True)
class Int:
    """An integer input, which defines the symbolic size with the argument's name."""


@dataclass(frozen=True)
class Object:
    """An input made of several tensors. The argument of the method is ``build(**tensors)``.

    mutable: the function writes to the tensors.
    """

    build: Callable[..., Any]
    fields: Mapping[str, Tensor]
    mutable: bool = False


@dataclass(frozen=True)
class Tuple:
    """An input that is a tuple of tensors: one parameter of the function, a tuple of tensors for the method."""

    fields: Sequence[Tensor]


@dataclass(frozen=True)
class Created:
    """A state (see ``states``) created by another exported function of the same spec; the argument is its view.

    kind: the class of the view.
    """

    kind: type


Input = Tensor | Int | Tuple | Object | Created


@dataclass(frozen=True)
class Function:
    """One exported function.

    param_mode: "packed" passes all weights as one tuple after the inputs, "plain" as one parameter each, "none" passes
    no weights. upper_bounds: the maximum of symbolic sizes, by name. effect_mode: how caches that the module holds are
    passed (``compat/nn_effects.py``). Raises SpecError for an unknown mode.
    """

    call: Callable[..., Any]
    inputs: Mapping[str, Input]
    param_mode: str = "packed"
    upper_bounds: Mapping[str, int] = field(default_factory=dict)
    effect_mode: str = "none"

    def __post_init__(self) -> None:
        if self.param_mode not in PARAM_MODES:
            raise SpecError(f"param_mode: got {self.param_mode!r}; expected one of {', '.join(PARAM_MODES)}")
        if self.effect_mode not in EFFECT_MODES:
            raise SpecError(f"effect_mode: got {self.effect_mode!r}; expected one of {', '.join(EFFECT_MODES)}")


@dataclass(frozen=True)
class ModuleSpec:
    """Functions to export, by name."""

    functions: Mapping[str, Function]

    @staticmethod
    def from_raw(raw: Mapping[str, Mapping[str, Any]], module: Any) -> ModuleSpec:
        """Parse ``{method: {argument: spec, "$": {"param_mode": …, "upper_bounds": …}}}``; ``int`` means ``Int()``.

        Raises SpecError for unknown methods, arguments, specs or options.
        """
        return ModuleSpec({name: _function(module, name, inputs) for name, inputs in raw.items()})

    def with_packed_weights(self) -> ModuleSpec:
        """The same functions with param_mode "packed" instead of "plain"."""
        packed = {
            n: f if f.param_mode == "none" else replace(f, param_mode="packed") for n, f in self.functions.items()
        }
        return ModuleSpec(packed)


def _function(module: Any, name: str, raw: Mapping[str, Any]) -> Function:
    call = getattr(module, name, None)
    if not callable(call):
        raise SpecError(f"{type(module).__name__} has no method {name!r}")
    options = dict(raw.get("$", {}))
    known = ("param_mode", "upper_bounds", "effect_mode")
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise SpecError(f"options: got {', '.join(unknown)}; expected {', '.join(known)}")
    inputs = {n: _input(f"{name}: {n}", value) for n, value in raw.items() if n != "$"}
    return Function(call, _in_order(name, call, inputs), **{"param_mode": "packed", **options})


def _input(what: str, value: Any) -> Input:
    if value is int:
        return Int()
    if isinstance(value, Input):
        return value
    expected = "spec.Tensor, spec.Int, spec.Tuple, spec.Object, spec.Created or int"
    raise SpecError(f"{what} is {value!r}; expected {expected}")


def _in_order(name: str, call: Callable[..., Any], inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Order the inputs like the method's parameters; trailing ones with a default may be omitted."""
    parameters = inspect.signature(call).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return dict(inputs)
    ordered = {n: inputs[n] for n in parameters if n in inputs}
    required = [n for n, p in parameters.items() if p.default is p.empty]
    leading = list(parameters)[: len(ordered)]
    if len(ordered) < len(inputs) or any(n not in inputs for n in required) or leading != list(ordered):
        raise SpecError(f"{name}: got the arguments {', '.join(inputs) or 'none'}; expected {', '.join(parameters)}")
    return ordered
