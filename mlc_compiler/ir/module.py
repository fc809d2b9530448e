"""IRModule: named functions of both levels, the input and output of every pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .naming import unique_name
from .node import node
from .printable import Printable, with_attr


@node
class GlobalVar:
    """A reference to a function of the module, by name."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalVar) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, eq=False)
class IRModule(Printable):
    """Functions by name (``relax.Function``, ``tir.PrimFunc``) and attributes.

    Immutable but for ``update_func``: passes and all other updates return a copy.
    """

    functions: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str | GlobalVar) -> Any:
        key = _name(name)
        if key not in self.functions:
            raise KeyError(f"no function {key!r} in the module; it has {', '.join(self.functions) or 'none'}")
        return self.functions[key]

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def get_global_var(self, name: str) -> GlobalVar:
        """The reference to an existing function. Raises KeyError for an unknown name."""
        self[name]
        return GlobalVar(name)

    def of_type(self, cls: type) -> dict[str, Any]:
        """The functions of one level, in module order."""
        return {name: f for name, f in self.functions.items() if isinstance(f, cls)}

    def with_functions(self, functions: Mapping[str, Any]) -> IRModule:
        """The module with its functions replaced by ``functions``."""
        return replace(self, functions=dict(functions))

    def updated(self, changes: Mapping[str, Any]) -> IRModule:
        """The module with functions replaced or added."""
        return replace(self, functions={**self.functions, **changes})

    def with_function(self, name: str | GlobalVar, func: Any) -> IRModule:
        """The module with one function replaced or added."""
        return self.updated({_name(name): func})

    def update_func(self, name: str | GlobalVar, func: Any) -> None:
        """Replace or add a function of this module, in place; ``with_function`` leaves the module as it is."""
        object.__setattr__(self, "functions", {**self.functions, _name(name): func})

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> IRModule:
        """The module with an attribute, or all of a mapping, set."""
        return replace(self, attrs=with_attr(self.attrs, key, value))

    @staticmethod
    def from_expr(func: Any) -> IRModule:
        """The module of one function, named by its ``global_symbol`` or else ``main``."""
        return IRModule({func.attrs.get("global_symbol", "main"): func})

    def unique_name(self, base: str) -> str:
        """``base``, or ``base1``, ``base2`` … when taken."""
        return unique_name(base, self.functions, separator="")


def _name(name: str | GlobalVar) -> str:
    return name.name if isinstance(name, GlobalVar) else name
