"""The result of an import: a module, and the model's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..api import TargetSpec
from ..ir.module import IRModule
from ..jit import CompiledModule, compile_module
from ..relax.info import get_item, info_of
from ..relax.nodes import Binding, BindingBlock, Function, TupleStructInfo, Var

PACKED_PARAMS = "packed_params"


@dataclass(frozen=True)
class Imported:
    """A model from another framework.

    mod: its function ``main`` takes the model's inputs, ``num_input`` of them, and then its parameters. params: arrays
    that support DLPack by the names of these arguments, in their order; empty when they were bound as constants.
    """

    mod: IRModule
    params: Mapping[str, Any]

    def jit(self, target: TargetSpec = None, num_threads: int | None = None) -> CompiledModule:
        """Compile the model and hold its parameters in the layouts that the kernels read: ``model["main"](x)``.

        Arguments and errors are those of ``build``.
        """
        main = self.mod["main"]
        assert isinstance(main, Function)
        mod = self.mod.with_function("main", with_packed_params(main))
        return compile_module(mod, self.params, target, num_threads)


def with_packed_params(func: Function) -> Function:
    """Return the function with all parameters after its inputs combined into one tuple."""
    count = int(func.attrs["num_input"])
    inputs, weights = func.params[:count], func.params[count:]
    if not weights:
        return func
    packed = Var(PACKED_PARAMS, TupleStructInfo(tuple(info_of(w) for w in weights)))
    taken = BindingBlock(tuple(Binding(w, get_item(packed, i)) for i, w in enumerate(weights)))
    return replace(func, params=(*inputs, packed), blocks=(taken, *func.blocks))
