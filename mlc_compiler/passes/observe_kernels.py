"""Insert calls of an observer around the kernels of a planned graph function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir.expr import IntImm
from ..ir.module import GlobalVar, IRModule
from ..relax.nodes import Binding, BindingBlock, Call, Expr, ExternFunc, Function, PrimValue, StringImm, Var
from ..tir.nodes import PrimFunc
from .base import Pass

OBSERVER = "mlc.observe_kernel"
"""The registered function ``(graph function, kernel, number of the call, number of results, *tensors)``."""


@dataclass(frozen=True)
class ObserveKernels(Pass):
    """Call the registered function ``mlc.observe_kernel`` at the start and after each call of a tensor function.

    Needs: planned functions without barriers. The observer gets the name of the graph function, the name of the tensor
    function, the call's index in the graph function, and the number of results; at the start an empty name and the
    index -1. tensors: also pass the inputs and results of the call, in this order, without scratch memory. Kernels,
    memory plan and weights do not change; kernels that could run concurrently run one after the other.
    """

    name = "observe-kernels"
    tensors: bool = True

    def run(self, mod: IRModule) -> IRModule:
        kernels = mod.of_type(PrimFunc)
        return mod.updated({name: self._observed(name, f, kernels) for name, f in mod.of_type(Function).items()})

    def _observed(self, name: str, func: Function, kernels: dict[str, PrimFunc]) -> Function:
        bindings = tuple(self._bindings(name, func, kernels))
        return replace(func, blocks=(BindingBlock(bindings),))

    def _bindings(self, name: str, func: Function, kernels: dict[str, PrimFunc]) -> Iterator[Binding]:
        yield _observation(name, "", -1, 0)
        number = 0
        for binding in func.bindings:
            yield binding
            call = binding.value
            if isinstance(call, Call) and isinstance(call.target, GlobalVar):
                kernel = kernels[call.target.name]
                yield _observation(
                    name, call.target.name, number, _count(kernel, "num_outputs"), self._given(call, kernel)
                )
                number += 1

    def _given(self, call: Call, kernel: PrimFunc) -> tuple[Expr, ...]:
        return call.args[: len(kernel.buffers) - _count(kernel, "num_scratch")] if self.tensors else ()


def _observation(function: str, kernel: str, number: int, results: int, tensors: tuple[Expr, ...] = ()) -> Binding:
    what: tuple[Expr, ...] = (StringImm(function), StringImm(kernel), _integer(number), _integer(results))
    return Binding(Var("_", None), Call(ExternFunc(OBSERVER), (*what, *tensors)))


def _count(kernel: PrimFunc, attribute: str) -> int:
    return int(kernel.attrs.get(attribute, 0))


def _integer(value: int) -> PrimValue:
    return PrimValue(IntImm(value))
