"""Modules: containers of parameters and sub-modules with a ``forward`` method that is traced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..ir.module import IRModule
from ..target import Target
from . import spec
from .export import export_functions
from .tensor import Parameter, ParameterError, Tensor

if TYPE_CHECKING:
    from ..jit import CompiledModule


class Module:
    """Base class of layers and models. Sub-modules and parameters are plain attributes, in order of definition."""

    def forward(self, *args: Any) -> Any:
        """The computation of the module, run when it is called."""
        raise TypeError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def children(self) -> Iterator[tuple[str, Module]]:
        """The direct sub-modules, by attribute name."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all its sub-modules, by dotted path, parents first."""
        yield prefix, self
        for name, child in self.children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters by dotted path, in order of definition; a shared parameter is listed once."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def parameters(self) -> list[Parameter]:
        """All parameters, in order of definition."""
        return [parameter for _, parameter in self.named_parameters()]

    def state_dict(self) -> dict[str, Parameter]:
        """All parameters by dotted path; their ``data`` are the arrays that a compiled module uses."""
        return dict(self.named_parameters())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Set the parameters' data: arrays (numpy, or any that supports DLPack) or parameters, by dotted path.

        Returns the missing and the unexpected names. Raises ParameterError for an array of a wrong shape or dtype and,
        when ``strict``, for any missing or unexpected name; then nothing is set.
        """
        own = self.state_dict()
        missing, unexpected = [n for n in own if n not in state], [n for n in state if n not in own]
        if strict and (missing or unexpected):
            lists = [f"{what} {', '.join(n)}" for what, n in (("missing", missing), ("unexpected", unexpected)) if n]
            raise ParameterError(f"load_state_dict: {'; '.join(lists)}", hint="strict=False ignores them")
        arrays = {n: value.data if isinstance(value, Parameter) else value for n, value in state.items()}
        fitting = {n: own[n].fitting(a, f"load_state_dict: {n}") for n, a in arrays.items() if n in own}
        for name, array in fitting.items():
            own[name].data = array
        return missing, unexpected

    def to(self, dtype: str) -> Module:
        """Set the storage dtype of all floating parameters. Computation uses the dtype of the activations."""
        for _, parameter in self.named_parameters():
            parameter.to(dtype)
        return self

    def replace(self, path: str, module: Module) -> None:
        """Replace the sub-module at a dotted path. Raises ParameterError when there is none."""
        *outer, name = path.split(".")
        parent: Module | None = self
        for step in outer:
            parent = None if parent is None else dict(parent.children()).get(step)
        if parent is None or name not in dict(parent.children()):
            modules = [known for known, _ in self.named_modules() if known]
            raise ParameterError(f"replace: no module {path!r}; there are {', '.join(modules) or 'none'}")
        parent.set_child(name, module)

    def set_child(self, name: str, module: Module) -> None:
        """Replace the direct sub-module of that name; see ``children``."""
        setattr(self, name, module)

    def export(
        self, functions: spec.ModuleSpec | Mapping[str, Any], debug: bool = False
    ) -> tuple[IRModule, dict[str, Parameter]]:
        """Trace ``functions`` to an IRModule; returns it and the parameters by name, in the order they are passed.

        A mapping has the form ``{method: {argument: spec.Tensor | spec.Int | spec.Object, "$": options}}``. debug:
        allow ``op.print_`` and ``op.debug_func``; the functions are then impure. Raises SpecError for a spec that does
        not match the module.
        """
        parameters = dict(self.named_parameters())
        return export_functions(_spec(functions, self), parameters, debug), parameters

    def jit(
        self,
        functions: spec.ModuleSpec | Mapping[str, Any],
        target: str | Mapping[str, Any] | Target | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        debug: bool = False,
        num_threads: int | None = None,
    ) -> CompiledModule:
        """Compile ``functions`` (see ``export``) to a callable module that holds the parameters.

            model = net.jit({"forward": {"x": spec.Tensor(("n", 784))}})
            y = model["forward"](x)

        params: arrays (numpy, or any that supports DLPack) by dotted path, which override the parameters' own data.
        num_threads: threads of a call, by default the number of physical cores. Raises ParameterError for an unknown
        name, a parameter without data, and data of a wrong shape or dtype.
        """
        from ..jit import compile_module

        mod, parameters = self.export(_spec(functions, self).with_packed_weights(), debug)
        return compile_module(mod, _values(parameters, params or {}), target, num_threads)


def _spec(functions: spec.ModuleSpec | Mapping[str, Any], module: Module) -> spec.ModuleSpec:
    return functions if isinstance(functions, spec.ModuleSpec) else spec.ModuleSpec.from_raw(functions, module)


def _values(parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The array for each parameter. Raises ParameterError for a missing or mismatched array or an unknown name."""
    unknown = [name for name in given if name not in parameters]
    if unknown:
        raise ParameterError(f"jit: no parameter {unknown[0]!r}; the module has {', '.join(parameters) or 'none'}")
    values = {name: given.get(name, parameter.data) for name, parameter in parameters.items()}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        hint = "set its data, call load_state_dict, or give params={name: array}"
        raise ParameterError(f"jit: {', '.join(missing)} has no data", hint=hint)
    return {name: parameters[name].fitting(value, f"jit: {name}") for name, value in values.items()}


class ModuleList(Module):
    """A list of modules: ``layers = ModuleList(Layer() for _ in range(12))``; their paths are ``layers.0``, …"""

    def __init__(self, modules: Iterable[Any] = ()):
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

    def __setitem__(self, index: int, module: Module) -> None:
        self.modules[index] = module

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        self.modules.append(module)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the modules in order."""
        for module in self.modules:
            x = module(x)
        return x
