"""Copy results of graph functions that alias parameters, constants or each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..relax import nodes as rx
from ..relax.builder import BlockBuilder, call_tir
from ..relax.dataflow import is_op
from ..relax.info import get_item, make_tuple, tensor_info_of
from ..relax.ops import VIEW_OPERATORS
from ..relax.tensor_call import lower_te
from ..tir import te
from .base import Pass


@dataclass(frozen=True)
class CopyResults(Pass):
    """Copy results that alias a parameter, a constant or another result.

    A parameter that the function has written in place is returned without a copy.
    """

    name = "copy-results"

    def run(self, mod: IRModule) -> IRModule:
        builder = BlockBuilder(mod)
        graph = {n: f for n, f in mod.of_type(rx.Function).items() if not f.attrs.get("Primitive")}
        functions = {name: _copied(f, builder) for name, f in graph.items()}
        return builder.get().updated(functions)


@dataclass(eq=False)
class Tensor:
    """A tensor in memory, to which several variables and views may refer."""

    owned: bool
    written: bool = False


Place = Tensor | list["Place"]


@dataclass
class Places:
    """Maps the values of a function to tensors in memory."""

    where: dict[int, Place] = field(default_factory=dict)

    def read(self, func: rx.Function) -> None:
        """Record the bindings of a function."""
        for param in func.params:
            self.where[id(param)] = _new(param.struct_info, owned=False)
        for binding in func.bindings:
            self.where[id(binding.var)] = self.of(binding.value)

    def of(self, value: rx.Expr) -> Place:
        if isinstance(value, rx.Var):
            return self.where[id(value)]
        if isinstance(value, rx.Tuple):
            return [self.of(f) for f in value.fields]
        if isinstance(value, rx.TupleGetItem):
            return self.of(value.tuple_value)[value.index]  # type: ignore[index]
        if isinstance(value, rx.Call):
            return self._call(value)
        return _new(value.struct_info, owned=False)

    def _call(self, call: rx.Call) -> Place:
        if is_op(call, *VIEW_OPERATORS):
            return self.of(call.args[0])
        if not is_op(call, "call_tir_inplace"):
            return _new(call.struct_info, owned=True)
        inputs = self.of(call.args[1])
        infos = call.out_info.fields if isinstance(call.out_info, rx.TupleStructInfo) else (call.out_info,)
        results: list[Place] = []
        for info, index in zip(infos, call.attrs["inplace_indices"], strict=True):
            place = inputs[index] if index >= 0 else _new(info, owned=True)  # type: ignore[index]
            assert isinstance(place, Tensor)
            place.written = place.written or index >= 0
            results.append(place)
        return results if isinstance(call.out_info, rx.TupleStructInfo) else results[0]


def _new(info: rx.StructInfo | None, owned: bool) -> Place:
    if isinstance(info, rx.TupleStructInfo):
        return [_new(f, owned) for f in info.fields]
    return Tensor(owned)


def _copied(func: rx.Function, builder: BlockBuilder) -> rx.Function:
    places = Places()
    places.read(func)
    parameters = {id(places.where[id(p)]) for p in func.params}
    bindings: list[rx.Binding] = []
    seen: set[int] = set()

    def result(value: rx.Expr, place: Place) -> rx.Expr:
        if isinstance(place, list):
            return make_tuple([result(get_item(value, i), p) for i, p in enumerate(place)])
        is_own = place.owned and id(place) not in seen
        has_caller = place.written and id(place) in parameters
        seen.add(id(place))
        if is_own or has_caller or not isinstance(value.struct_info, rx.TensorStructInfo):
            return value
        bindings.extend(_copy(value, len(bindings), builder))
        return bindings[-1].var

    ret = result(func.ret, places.of(func.ret))
    if not bindings:
        return func
    return replace(func, blocks=(*func.blocks, rx.BindingBlock(tuple(bindings))), ret=ret)


def _copy(value: rx.Expr, number: int, builder: BlockBuilder) -> Iterator[rx.Binding]:
    if not isinstance(value, rx.Var | rx.Constant):
        source = rx.Var(f"source{number}", value.struct_info)
        yield rx.Binding(source, value)
        value = source

    def copy(x: Any) -> te.Tensor:
        if isinstance(x, PrimExpr):
            return te.compute((), lambda: x, name="copied")
        return te.compute(x.shape, lambda *i: x[i], name="copied")

    lowered = lower_te(copy, ["source"], [value], {})
    info = tensor_info_of(value)
    call = call_tir(builder.add_func(lowered.func, "copy"), lowered.inputs, info, lowered.scalars)
    yield rx.Binding(rx.Var(f"copy{number}", info), call)
