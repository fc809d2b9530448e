"""Tracing: exports each function of a spec as a graph function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ..ir.expr import PrimExpr, Var, as_expr
from ..ir.module import IRModule
from ..relax.builder import BlockBuilder
from ..relax.info import get_item, make_tuple, tensor_info
from ..relax.nodes import Expr, PrimStructInfo, TupleStructInfo
from ..relax.nodes import Var as GraphVar
from . import spec
from .debug import debugging
from .tensor import Parameter, Tensor

PACKED_PARAMS = "packed_params"


def export_functions(functions: spec.ModuleSpec, parameters: Mapping[str, Parameter], debug: bool) -> IRModule:
    """Trace all functions to a module, which includes the tensor functions that they call."""
    builder = BlockBuilder()
    with debugging(debug):
        for name, function in functions.functions.items():
            _Tracer(builder, function, parameters, debug).trace(name)
    return builder.get()


class _Tracer:
    def __init__(
        self, builder: BlockBuilder, function: spec.Function, parameters: Mapping[str, Parameter], debug: bool
    ):
        self.builder, self.function, self.parameters, self.debug = builder, function, parameters, debug
        self.sizes: dict[str, Var] = {}
        self.inputs: list[GraphVar] = []

    def trace(self, name: str) -> None:
        args = [self._input(n, s) for n, s in self.function.inputs.items()]
        weights = self._weights()
        attrs: dict[str, Any] = {"num_input": len(self.inputs)}
        if self.function.upper_bounds:
            attrs["tir_var_upper_bound"] = {k: v for k, v in self.function.upper_bounds.items() if k in self.sizes}
        has_effects = self.debug or any(isinstance(s, spec.Object) and s.mutable for s in self.function.inputs.values())
        with self.builder.function(name, [*self.inputs, *weights], attrs, is_pure=not has_effects):
            self._body(args, weights)

    def _body(self, args: Sequence[Any], weights: Sequence[GraphVar]) -> None:
        try:
            with nullcontext() if self.debug else self.builder.dataflow():
                self._bind_weights(weights)
                result = self.builder.emit_output(_as_graph_value(self.function.call(*args)))
            self.builder.emit_func_output(result)
        finally:
            for parameter in self.parameters.values():
                parameter.bind(None)

    # -- inputs

    def _input(self, name: str, input_spec: spec.Input) -> Any:
        if isinstance(input_spec, spec.Tensor):
            return self._tensor(name, input_spec)
        if isinstance(input_spec, spec.Object):
            return input_spec.build(**{n: self._tensor(n, t) for n, t in input_spec.fields.items()})
        size = self._size(name)
        self.inputs.append(GraphVar(name, PrimStructInfo("int64", size)))
        return size

    def _tensor(self, name: str, input_spec: spec.Tensor) -> Tensor:
        var = GraphVar(name, tensor_info([self._size(s) for s in input_spec.shape], input_spec.dtype))
        self.inputs.append(var)
        return Tensor(var)

    def _size(self, size: int | str) -> PrimExpr:
        return self.sizes.setdefault(size, Var(size)) if isinstance(size, str) else as_expr(size)

    # -- weights

    def _weights(self) -> list[GraphVar]:
        if self.function.param_mode == "none":
            return []
        listed = [GraphVar(_identifier(n), tensor_info(p.shape, p.dtype)) for n, p in self.parameters.items()]
        if self.function.param_mode == "plain":
            return listed
        return [GraphVar(PACKED_PARAMS, TupleStructInfo(tuple(v.struct_info for v in listed)))]  # type: ignore[misc]

    def _bind_weights(self, weights: Sequence[GraphVar]) -> None:
        for i, (name, parameter) in enumerate(self.parameters.items()):
            if self.function.param_mode == "packed":
                parameter.bind(self.builder.emit(get_item(weights[0], i), _identifier(name)))
            elif weights:
                parameter.bind(weights[i])


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _as_graph_value(result: Any) -> Expr:
    if isinstance(result, Tensor):
        return result.expr
    if isinstance(result, tuple | list):
        return make_tuple([_as_graph_value(r) for r in result])
    raise spec.SpecError(f"an exported function returns tensors and tuples of them; got {type(result).__name__}")
