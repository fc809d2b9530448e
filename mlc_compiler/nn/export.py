"""Tracing: export each function of a spec as a graph function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ..ir.expr import PrimExpr, Var, as_expr
from ..ir.module import IRModule
from ..relax.builder import BlockBuilder
from ..relax.info import get_item, make_tuple, prim_value, tensor_info
from ..relax.nodes import Expr, PrimStructInfo, TensorStructInfo, TupleStructInfo
from ..relax.nodes import Var as GraphVar
from . import spec
from .debug import debugging
from .states import NewState, State, inputs
from .tensor import Parameter, Tensor

PACKED_PARAMS = "packed_params"


def export_functions(functions: spec.ModuleSpec, parameters: Mapping[str, Parameter], debug: bool) -> IRModule:
    """Trace all functions to a module, which includes the tensor functions that they call."""
    builder = BlockBuilder()
    created: list[State] = []
    with debugging(debug):
        for name, function in sorted(functions.functions.items(), key=lambda item: _takes_created(item[1])):
            _Tracer(builder, function, parameters, debug, created).trace(name)
    return builder.get()


def _takes_created(function: spec.Function) -> bool:
    return any(isinstance(s, spec.Created) for s in function.inputs.values())


class _Tracer:
    """Traces one function. created: the states created by the functions traced so far."""

    def __init__(
        self,
        builder: BlockBuilder,
        function: spec.Function,
        parameters: Mapping[str, Parameter],
        debug: bool,
        created: list[State],
    ):
        self.builder, self.function, self.parameters, self.debug = builder, function, parameters, debug
        self.created = created
        self.views: dict[int, State] = {}
        self.sizes: dict[str, Var] = {}
        self.inputs: list[GraphVar] = []

    def trace(self, name: str) -> None:
        if self.function.effect_mode != "none":
            hint = "mlc_compiler.compat.nn.Module.export_tvm passes caches; for states, see nn.states"
            raise spec.SpecError(f"{name}: effect_mode is {self.function.effect_mode!r}; expected 'none'", hint=hint)
        args = [self._input(n, s) for n, s in self.function.inputs.items()]
        weights = self._weights()
        attrs: dict[str, Any] = {"num_input": len(self.inputs)}
        if self.function.upper_bounds:
            attrs["tir_var_upper_bound"] = {k: v for k, v in self.function.upper_bounds.items() if k in self.sizes}
        has_effects = self.debug or any(map(_is_mutable, self.function.inputs.values()))
        with self.builder.function(name, [*self.inputs, *weights], attrs, is_pure=not has_effects):
            self._body(args, weights)

    def _body(self, args: Sequence[Any], weights: Sequence[GraphVar]) -> None:
        try:
            with nullcontext() if self.debug else self.builder.dataflow():
                self._bind_weights(weights)
                result = self.builder.emit_output(self._result(self.function.call(*args)))
            self.builder.emit_func_output(result)
        finally:
            for parameter in self.parameters.values():
                parameter.bind(None)

    def _result(self, result: Any) -> Expr:
        if isinstance(result, Tensor):
            return result.expr
        if isinstance(result, tuple | list):
            return make_tuple([self._result(r) for r in result])
        if isinstance(result, NewState):
            self.created.append(result.state)
            frame = self.builder.frame
            frame.attrs = {**frame.attrs, "creates": result.state.describe()}
            return self._result(result.arrays)
        if isinstance(result, PrimExpr):
            return prim_value(result)
        state = self.views.get(id(result))
        if state is not None:
            return self._result([getattr(result, name) for name in state.fields()])
        got = type(result).__name__
        raise spec.SpecError(f"an exported function returns tensors, states and tuples of them; got {got}")

    # -- inputs

    def _input(self, name: str, input_spec: spec.Input) -> Any:
        if isinstance(input_spec, spec.Tensor):
            return self._tensor(name, input_spec)
        if isinstance(input_spec, spec.Object):
            return input_spec.build(**{n: self._tensor(n, t) for n, t in input_spec.fields.items()})
        if isinstance(input_spec, spec.Created):
            return self._view(name, input_spec.kind)
        if isinstance(input_spec, spec.Tuple):
            return self._tuple(name, input_spec)
        size = self._size(name)
        self.inputs.append(GraphVar(name, PrimStructInfo("int64", size)))
        return size

    def _view(self, name: str, kind: type) -> Any:
        """The view of a created state for the call's ``num_tokens`` tokens."""
        if len(self.created) != 1:
            hint = "export a function of the same spec that returns a NewState, such as TIRPagedKVCache(…)"
            raise spec.SpecError(
                f"{name}: got {len(self.created)} functions that create a state; expected 1", hint=hint
            )
        (state,) = self.created
        (view,) = self._input(name, inputs([state], "num_tokens"))
        if not isinstance(view, kind):
            raise spec.SpecError(f"{name}: the state is a {type(view).__name__}; expected a {kind.__name__}")
        self.views[id(view)] = state
        return view

    def _tensor(self, name: str, input_spec: spec.Tensor) -> Tensor:
        var = GraphVar(name, self._info(input_spec.shape, input_spec.dtype))
        self.inputs.append(var)
        return Tensor(var)

    def _tuple(self, name: str, input_spec: spec.Tuple) -> tuple[Tensor, ...]:
        infos = tuple(self._info(f.shape, f.dtype) for f in input_spec.fields)
        var = GraphVar(name, TupleStructInfo(infos))
        self.inputs.append(var)
        return tuple(Tensor(get_item(var, i)) for i in range(len(infos)))

    def _info(self, shape: Sequence[int | str | PrimExpr], dtype: str) -> TensorStructInfo:
        return tensor_info([self._size(s) for s in shape], dtype)

    def _size(self, size: int | str | PrimExpr) -> PrimExpr:
        """Convert a size to an expression; a name becomes the function's own symbolic size of that name."""
        name = size.name if isinstance(size, Var) else size
        return self.sizes.setdefault(name, Var(name)) if isinstance(name, str) else as_expr(name)

    # -- weights

    def _weights(self) -> list[GraphVar]:
        if self.function.param_mode == "none":
            return []
        listed = [GraphVar(_identifier(n), self._info(p.shape, p.dtype)) for n, p in self.parameters.items()]
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


def _is_mutable(input_spec: spec.Input) -> bool:
    return isinstance(input_spec, spec.Created) or (isinstance(input_spec, spec.Object) and input_spec.mutable)
