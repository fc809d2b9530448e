"""What to export: functions, the shapes of their inputs with symbolic sizes by name, how weights are passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PARAM_MODES = ("packed", "plain", "none")


@dataclass(frozen=True)
class Tensor:
    """A tensor input; a size is a number or the name of a symbolic size, shared within the function."""

    shape: Sequence[int | str]
    dtype: str = "float32"


@dataclass(frozen=True)
class Int:
    """An integer input: a symbolic size of the argument's name."""


@dataclass(frozen=True)
class Object:
    """An input made of several tensors. ``build(**tensors)`` makes what the method sees.

    mutable: the function writes into the tensors.
    """

    build: Callable[..., Any]
    fields: Mapping[str, Tensor]
    mutable: bool = False


Input = Tensor | Int | Object


@dataclass(frozen=True)
class Function:
    """One exported function.

    param_mode: "packed" passes all weights as one last tuple, "plain" each as a parameter, "none" not at all.
    upper_bounds: the greatest value of symbolic sizes, by name.
    """

    call: Callable[..., Any]
    inputs: Mapping[str, Input]
    param_mode: str = "packed"
    upper_bounds: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.param_mode not in PARAM_MODES:
            raise ValueError(f"param_mode: got {self.param_mode!r}; expected one of {', '.join(PARAM_MODES)}")


@dataclass(frozen=True)
class ModuleSpec:
    """Functions to export, by name."""

    functions: Mapping[str, Function]

    @staticmethod
    def from_raw(raw: Mapping[str, Mapping[str, Any]], module: Any) -> ModuleSpec:
        """Reads ``{method: {argument: spec, "$": {"param_mode": …, "upper_bounds": …}}}``; ``int`` means ``Int()``."""
        return ModuleSpec({name: _function(getattr(module, name), inputs) for name, inputs in raw.items()})


def _function(call: Callable[..., Any], raw: Mapping[str, Any]) -> Function:
    options = dict(raw.get("$", {}))
    effects = options.pop("effect_mode", "none")
    unknown = sorted(set(options) - {"param_mode", "upper_bounds"})
    if unknown or effects != "none":
        raise ValueError(f"options: got {', '.join(unknown) or effects}; expected param_mode, upper_bounds")
    inputs = {name: Int() if value is int else value for name, value in raw.items() if name != "$"}
    return Function(call, inputs, options.get("param_mode", "packed"), options.get("upper_bounds", {}))
