"""A module of the front end as something to call: its functions compiled, its parameters held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlc_runtime.arguments import ArgumentError, as_tensor
from mlc_runtime.library import Function, Library
from mlc_runtime.metadata import TensorSpec

from .ir.module import IRModule
from .library import build
from .relax import nodes as rx
from .target import Target


@dataclass(frozen=True)
class Method:
    """A compiled function with its weights in place: takes its inputs, gives numpy arrays like ``Library`` does."""

    name: str
    inputs: tuple[str, ...]
    function: Function
    weights: tuple[Any, ...]

    def __call__(self, *args: object) -> object:
        """The result for the inputs, arrays that speak DLPack. Raises ArgumentError for what does not fit."""
        if len(args) != len(self.inputs):
            names = ", ".join(self.inputs)
            raise ArgumentError(f"{self.name} got {len(args)} arguments; expected {len(self.inputs)} ({names})")
        return self.function(*args, *self.weights)


class CompiledModule:
    """What ``nn.Module.jit`` gives: ``model["forward"](x)`` or ``model.forward(x)``.

    mod: the module as exported; library: what it was compiled to.
    """

    def __init__(self, mod: IRModule, library: Library, params: Mapping[str, Any]):
        self.mod = mod
        self.library = library
        held = [_tensor(name, value) for name, value in params.items()]
        self.methods = {name: _method(name, f, library, held) for name, f in mod.of_type(rx.Function).items()}

    def __getitem__(self, name: str) -> Method:
        if name not in self.methods:
            raise ArgumentError(f"the compiled module has no function {name!r}; it has {', '.join(self.methods)}")
        return self.methods[name]

    def __getattr__(self, name: str) -> Method:
        methods: Mapping[str, Method] = self.__dict__.get("methods", {})
        if name not in methods:
            raise AttributeError(f"the compiled module has no function {name!r}; it has {', '.join(methods)}")
        return methods[name]


def compile_module(
    mod: IRModule, params: Mapping[str, Any], target: str | Target, num_threads: int | None
) -> CompiledModule:
    """Compile an exported module; ``params`` are the arrays for the parameters that its functions take, in order."""
    return CompiledModule(mod, build(mod, target, num_threads=num_threads), params)


def _tensor(name: str, value: Any) -> Any:
    return as_tensor("jit", TensorSpec(name, tuple(value.shape), str(value.dtype).removeprefix("torch.")), value)


def _method(name: str, func: rx.Function, library: Library, held: Sequence[Any]) -> Method:
    """``func`` takes its inputs, then the weights: one by one, as one tuple, or not at all."""
    count = int(func.attrs["num_input"])
    inputs, weights = func.params[:count], func.params[count:]
    is_packed = any(isinstance(w.struct_info, rx.TupleStructInfo) for w in weights)
    values = (held,) if is_packed else held if weights else ()
    return Method(name, tuple(p.name for p in inputs), library[name], tuple(values))
