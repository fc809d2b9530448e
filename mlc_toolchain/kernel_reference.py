"""Reference for GPU kernels: the same functions, compiled for this machine's CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from mlc_compiler.api import build
from mlc_compiler.interp import run_function
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
    """The module with fused, unscheduled tensor functions, from which the kernels for ``target`` are made."""
    steps = takewhile(lambda step: not isinstance(step, ApplySchedules), pipeline(target))
    return run_passes(mod, [Legalize() if isinstance(step, Legalize) else step for step in steps])


class FunctionReference:
    """Runs the unscheduled forms of a lowered module's tensor functions on the CPU.

    packed: address of each packed weight -> the weight in its stored layout.
    """

    def __init__(self, plain: IRModule, lowered: IRModule, packed: Mapping[int, Array]):
        self.packed = packed
        functions = plain.of_type(PrimFunc)
        self.functions = {n: f for n, f in functions.items() if n in lowered and _agree(f, lowered[n], packed)}
        self.library = _native(self.functions)

    def run(self, name: str, func: PrimFunc, args: Sequence[Any]) -> list[Any] | None:
        """The arguments after a call of ``func``; None if the function has no unscheduled form to compare with."""
        if name not in self.functions:
            return None
        after = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        dropped = {id(b) for b in scratch(func)}
        kept = [(p, a, b) for p, a, b in zip(func.params, args, after, strict=True) if id(p) not in dropped]
        for one, other in same_memory(args):
            after[other] = after[one]
        self.library[name](*(self._stored(before, now) for _, before, now in kept))
        return after

    def _stored(self, before: Any, now: Any) -> Any:
        return self.packed.get(before.ctypes.data, now) if isinstance(before, np.ndarray) else now


def same_memory(args: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of argument positions (first, later) that hold the same array."""
    first: dict[tuple[int, int], int] = {}
    pairs = []
    for position, array in enumerate(args):
        if isinstance(array, np.ndarray):
            earlier = first.setdefault((array.ctypes.data, array.nbytes), position)
            pairs += [(earlier, position)] if earlier != position else []
    return pairs


def _agree(plain: PrimFunc, lowered: PrimFunc, packed: Mapping[int, Array]) -> bool:
    """Whether both take the same arguments, except for scratch buffers and packed layouts of weights."""
    dropped = {id(b) for b in scratch(lowered)}
    kept = [p for p in lowered.params if id(p) not in dropped]
    if len(kept) != len(plain.params):
        return False
    return all(_alike(a, b) for a, b in zip(plain.params, kept, strict=True))


def _alike(a: Buffer | Var, b: Buffer | Var) -> bool:
    return isinstance(a, Buffer) == isinstance(b, Buffer) and a.dtype == b.dtype


class ModelReference:
    """The exported functions of a model in the dtype of ``mod``, with unscheduled tensor functions on the CPU.

    Sums are float32, and activations are not quantized.
    """

    def __init__(self, mod: IRModule, weights: Sequence[Array]):
        self.mod, self.weights = unscheduled(mod, Target(CPU)), tuple(weights)
        functions = self.mod.of_type(PrimFunc)
        self.names = {id(f): n for n, f in functions.items()}
        self.library = _native(functions)

    def run(self, name: str, arguments: Mapping[str, Array]) -> tuple[Array, ...]:
        """The results of an exported function; arguments that it writes in place are copied and converted first."""
        func = self.mod[name]
        assert isinstance(func, Function)
        infos = [(p.name, p.struct_info) for p in func.params]
        args = [arguments[n].astype(i.dtype) if isinstance(i, TensorStructInfo) else self.weights for n, i in infos]
        result = run_function(self.mod, name, *args, kernels=self._kernel)
        return result if isinstance(result, tuple) else (result,)

    def _kernel(self, func: PrimFunc, *args: Any) -> None:
        self.library[self.names[id(func)]](*args)


def _native(functions: Mapping[str, PrimFunc]) -> Library:
    """Compile tensor functions for this machine's CPU."""
    return build(IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()}), CPU)
