"""What kernels of a GPU have to compute: the same functions, compiled for this machine's CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from mlc_compiler.api import build
from mlc_compiler.driver import build_library
from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.relax.nodes import Function, TensorStructInfo
from mlc_compiler.sim.host_functions import scratch
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import Buffer, PrimFunc
from mlc_runtime.library import Library

Array = np.ndarray[Any, Any]
CPU = "cpu"


def unscheduled(mod: IRModule, target: Target) -> IRModule:
    """The fused tensor functions that the kernels for ``target`` are made of, as the operators define them."""
    steps = takewhile(lambda step: not isinstance(step, ApplySchedules), pipeline(target))
    return run_passes(mod, [Legalize() if isinstance(step, Legalize) else step for step in steps])


class FunctionReference:
    """Runs tensor functions of a lowered module as the CPU computes their unscheduled forms.

    packed: the weights in the layout of kernels that differs from the stored one, by address, with the stored arrays.
    """

    def __init__(self, plain: IRModule, lowered: IRModule, packed: Mapping[int, Array]):
        self.packed = packed
        functions = plain.of_type(PrimFunc)
        self.functions = {n: f for n, f in functions.items() if n in lowered and _agree(f, lowered[n], packed)}
        public = {n: f.with_attr("global_symbol", n) for n, f in self.functions.items()}
        self.library = build(IRModule(public), CPU)

    def run(self, name: str, func: PrimFunc, args: Sequence[Any]) -> list[Any] | None:
        """The arguments after a call of ``func``; None where the function has no unscheduled form to compare with."""
        if name not in self.functions:
            return None
        after = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        dropped = {id(b) for b in scratch(func)}
        kept = [(p, a, b) for p, a, b in zip(func.params, args, after, strict=True) if id(p) not in dropped]
        for one, other in _same_memory(args):
            after[other] = after[one]
        self.library[name](*(self._stored(before, now) for _, before, now in kept))
        return after

    def _stored(self, before: Any, now: Any) -> Any:
        return self.packed.get(before.ctypes.data, now) if isinstance(before, np.ndarray) else now


def _same_memory(args: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of positions of the same array; a later one follows the first."""
    first: dict[tuple[int, int], int] = {}
    pairs = []
    for position, array in enumerate(args):
        if isinstance(array, np.ndarray):
            earlier = first.setdefault((array.ctypes.data, array.nbytes), position)
            pairs += [(earlier, position)] if earlier != position else []
    return pairs


def _agree(plain: PrimFunc, lowered: PrimFunc, packed: Mapping[int, Array]) -> bool:
    """Whether both take the same arguments, apart from scratch memory and layouts of weights."""
    dropped = {id(b) for b in scratch(lowered)}
    kept = [p for p in lowered.params if id(p) not in dropped]
    if len(kept) != len(plain.params):
        return False
    return all(_alike(a, b) for a, b in zip(plain.params, kept, strict=True))


def _alike(a: Buffer | Var, b: Buffer | Var) -> bool:
    return isinstance(a, Buffer) == isinstance(b, Buffer) and a.dtype == b.dtype


class ModelReference:
    """The exported functions of a model as the CPU computes them. ``with`` deletes the library's file."""

    def __init__(self, mod: IRModule, weights: Sequence[Array]):
        self._folder = tempfile.TemporaryDirectory(prefix="mlc-reference-")
        output = Path(self._folder.name) / "lib.so"
        built = build_library(mod, Target(CPU), output)
        self.mod, self.library = mod, Library(output)
        packing = built.mod.attrs.get("packed", {})
        self.weights = [self._packed(packing.get(str(i)), w) for i, w in enumerate(weights)]
        self.table = np.array([w.ctypes.data for w in self.weights], np.int64)

    def __enter__(self) -> ModelReference:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(self, name: str, arguments: Mapping[str, Array]) -> Array:
        """The result of an exported function; arguments that it writes in place are converted copies."""
        func = self.mod[name]
        assert isinstance(func, Function)
        args = []
        for param in func.params:
            info = param.struct_info
            is_tensor = isinstance(info, TensorStructInfo)
            args.append(arguments[param.name].astype(info.dtype) if is_tensor else self.table)  # type: ignore[union-attr]
        result = self.library[name](*args)
        assert isinstance(result, np.ndarray)
        return result

    def _packed(self, function: str | None, weight: Array) -> Array:
        if function is None:
            return weight
        packed = self.library[function](weight)
        assert isinstance(packed, np.ndarray)
        return packed
