"""Modules: attributes that are parameters and modules, a ``forward`` that is traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..ir.module import IRModule
from . import spec
from .export import export_functions
from .tensor import Parameter, Tensor


class Module:
    """Base of all layers and models. Sub-modules and parameters are plain attributes, found in order of definition."""

    def forward(self, *args: Any) -> Any:
        """What calling the module computes."""
        raise TypeError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, by attribute name."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all inside it, by dotted path, parents first."""
        yield prefix, self
        for name, child in self.children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters by dotted path, in order of definition; one that occurs twice is given once."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def to(self, dtype: str) -> Module:
        """Set the storage type of every parameter. What is computed keeps the type of the activations."""
        for _, parameter in self.named_parameters():
            parameter.to(dtype)
        return self

    def replace(self, path: str, module: Module) -> None:
        """Put ``module`` in the place of the sub-module at a dotted path."""
        *outer, name = path.split(".")
        owner: Module = self
        for part in outer:
            owner = dict(owner.children())[part]
        owner.set_child(name, module)

    def set_child(self, name: str, module: Module) -> None:
        setattr(self, name, module)

    def export(self, functions: spec.ModuleSpec | Mapping[str, Any]) -> tuple[IRModule, dict[str, Parameter]]:
        """Trace the functions of ``functions`` to an IRModule; also gives the parameters by name, in their order.

        A plain mapping is read as ``{method: {argument: spec.Tensor | spec.Int | spec.Object, "$": options}}``.
        """
        listed = functions if isinstance(functions, spec.ModuleSpec) else spec.ModuleSpec.from_raw(functions, self)
        parameters = dict(self.named_parameters())
        return export_functions(listed, parameters), parameters


class ModuleList(Module):
    """Modules by number."""

    def __init__(self, modules: list[Any]):
        self.modules: list[Module] = list(modules)

    def children(self) -> Iterator[tuple[str, Module]]:
        return ((str(i), m) for i, m in enumerate(self.modules))

    def set_child(self, name: str, module: Module) -> None:
        self.modules[int(name)] = module

    def __iter__(self) -> Iterator[Any]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, index: int) -> Any:
        return self.modules[index]

    def forward(self, x: Tensor) -> Tensor:
        """The modules one after the other."""
        for module in self.modules:
            x = module(x)
        return x
