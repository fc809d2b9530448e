"""Compiled ``nn`` modules: native functions together with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_runtime.arguments import ArgumentError, as_tensor
from mlc_runtime.library import Function, Library
from mlc_runtime.metadata import TensorSpec

from .api import TargetSpec, build_prepared
from .ir.module import IRModule
from .pipeline import methods, run_passes
from .relax import nodes as rx
from .verifier import verify


class Weights:
    """The weights by name, and ``table``, their addresses: int64 [number of weights].

    Compiled functions take the table in place of the tuple of weights. Holding the tensors keeps the addresses valid.
    """

    def __init__(self, tensors: Mapping[str, Any]):
        self.tensors = tensors
        self.table = np.array([t.data_ptr() for t in tensors.values()], np.int64)


@dataclass(frozen=True)
class Method:
    """A compiled function with its weights bound: it is called with its inputs only; ``inputs`` are their names."""

    name: str
    inputs: tuple[str, ...]
    function: Function
    weights: Weights | None

    def __call__(self, *args: object) -> object:
        """Call the function on arrays that support DLPack; returns what ``Library`` functions return.

        Raises ArgumentError for a wrong number of arguments, dtype or shape.
        """
        if len(args) != len(self.inputs):
            names = ", ".join(self.inputs)
            raise ArgumentError(f"{self.name} got {len(args)} arguments; expected {len(self.inputs)} ({names})")
        return self.function(*args, *(() if self.weights is None else (self.weights.table,)))


class CompiledModule:
    """The result of ``nn.Module.jit``, called as ``model["forward"](x)`` or ``model.forward(x)``.

    mod: the exported module, which takes all weights as one tuple; library: the compiled library; weights: the
    parameters by name, packed into the layouts that the kernels read.
    """

    def __init__(self, mod: IRModule, library: Library, weights: Mapping[str, Any]):
        self.mod, self.library, self.weights = mod, library, weights
        held = Weights(weights)
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
    mod: IRModule, params: Mapping[str, Any], target: TargetSpec, num_threads: int | None
) -> CompiledModule:
    """Compile an exported module; ``params``: arrays for the fields of its functions' weight tuple, in order."""
    verify(mod)
    tensors = {name: _tensor(name, value) for name, value in params.items()}
    library, lowered = build_prepared(run_passes(mod, methods()), target, num_threads)
    packing = lowered.attrs.get("packed", {})
    names = {name: packing.get(str(i)) for i, name in enumerate(params)}
    weights = {name: _packed(library, names[name], library.memory.placed(tensor)) for name, tensor in tensors.items()}
    return CompiledModule(mod, library, weights)


def _packed(library: Library, function: str | None, weight: Any) -> Any:
    return weight if function is None else library.memory.tensor(library[function](weight))


def _tensor(name: str, value: Any) -> Any:
    return as_tensor("jit", TensorSpec(name, tuple(value.shape), str(value.dtype).removeprefix("torch.")), value)


def _method(name: str, func: rx.Function, library: Library, weights: Weights) -> Method:
    count = int(func.attrs["num_input"])
    inputs = tuple(p.name for p in func.params[:count])
    return Method(name, inputs, library[name], weights if len(func.params) > count else None)
