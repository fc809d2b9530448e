"""Mark the activations among the parameters of tensor functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.module import GlobalVar, IRModule
from ..relax import nodes as rx
from ..tir.nodes import PrimFunc
from .base import Pass
from .pack_layouts import Weights, tensor_args


@dataclass(frozen=True)
class MarkActivations(Pass):
    """Set the attribute ``activations``: the positions of parameters that are neither weights nor constants.

    A weight is packed once (see ``PackLayouts``), an activation would be packed at every call.
    """

    name = "mark-activations"

    def run(self, mod: IRModule) -> IRModule:
        weights = Weights.of(mod.of_type(rx.Function))
        found: dict[str, set[int]] = {}
        for name, args in _calls(mod):
            positions = {i for i, a in enumerate(args) if not isinstance(a, rx.Constant) and weights.index(a) is None}
            found.setdefault(name, set()).update(positions)
        functions = mod.of_type(PrimFunc)
        marked = {n: functions[n].with_attr("activations", tuple(sorted(found[n]))) for n in found if n in functions}
        return mod.updated(marked)


def _calls(mod: IRModule) -> Iterator[tuple[str, tuple[rx.Expr, ...]]]:
    """The names of the tensor functions that graph functions call, with the tensor arguments of each call."""
    for func in mod.of_type(rx.Function).values():
        for binding in func.bindings:
            args = tensor_args(binding.value)
            callee = binding.value.args[0] if args else None
            if isinstance(callee, GlobalVar):
                yield callee.name, args
