"""Interpreter of graph functions, binding by binding, on numpy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..ir.expr import PrimExpr, as_expr
from ..ir.module import GlobalVar, IRModule
from ..ir.recursion import deep_recursion
from ..relax.info import is_void
from ..relax.nodes import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    Function,
    Op,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..relax.ops import VIEW_OPERATORS, get_operator
from ..relax.tensor_call import lower_te
from ..tir.calling import scalar_parameters
from ..tir.nodes import Buffer, PrimFunc
from .errors import InterpreterError
from .evaluate import evaluate, match_shape
from .tensor import run_prim_func

Externs = Mapping[str, Callable[..., Any]]
Kernels = Callable[..., object]


@deep_recursion
def run_function(
    mod: IRModule, name: str, *args: Any, externs: Externs | None = None, kernels: Kernels = run_prim_func
) -> Any:
    """Run a function of a module.

    args: a numpy array for each tensor parameter, a tuple for a tuple, an int for a size, a tuple of ints for a shape.
    externs: the functions called by ``call_dps_packed`` and ``call_packed``, by name; they take arrays. kernels: runs a
    tensor function that a graph function calls, ``kernels(func, *args)``. Returns an array or a tuple of these;
    ``call_tir_inplace`` overwrites its arguments. A tensor function writes its outputs in place and returns None.
    Raises InterpreterError for a mismatched argument or size and for an invalid access.
    """
    func = mod[name]
    if isinstance(func, PrimFunc):
        return run_prim_func(func, *args)
    return _Frame(mod, externs or {}, name, kernels).call(func, args)


class _Frame:
    """A call frame of a graph function: the values of variables and symbolic sizes, by ``id``."""

    def __init__(self, mod: IRModule, externs: Externs, name: str, kernels: Kernels):
        self.mod, self.externs, self.name, self.kernels = mod, externs, name, kernels
        self.values: dict[int, Any] = {}
        self.sizes: dict[int, Any] = {}

    def call(self, func: Function, args: tuple[Any, ...]) -> Any:
        if len(args) != len(func.params):
            raise InterpreterError(f"{self.name}: got {len(args)} arguments; expected {len(func.params)}")
        for param, arg in zip(func.params, args):
            self.match(param.struct_info, arg, f"{self.name}: argument {param.name!r}")
            self.values[id(param)] = arg
        self.workspace = np.full(self.size(as_expr(func.attrs.get("workspace_bytes", 0))), 0xFF, np.uint8)
        for binding in func.bindings:
            self.bind(binding)
        return self.value(func.ret)

    def bind(self, binding: Binding) -> None:
        try:
            value = self.value(binding.value)
        except InterpreterError as error:
            where = [*error.where, f"{self.name}: {binding.var.name}"]
            raise InterpreterError(error.message, where=where) from error
        self.match(binding.var.struct_info, value, f"{self.name}: {binding.var.name!r}")
        self.values[id(binding.var)] = value

    def match(self, info: StructInfo | None, value: Any, what: str) -> None:
        """Check a value against its structure info, and bind the symbolic sizes that have no value yet."""
        if isinstance(info, TensorStructInfo):
            self._match_tensor(info, value, what)
        elif isinstance(info, TupleStructInfo):
            if not isinstance(value, tuple) or len(value) != len(info.fields):
                raise InterpreterError(f"{what}: expected a tuple of {len(info.fields)}")
            for i, (field, item) in enumerate(zip(info.fields, value)):
                self.match(field, item, f"{what}[{i}]")
        elif isinstance(info, ShapeStructInfo) and info.values is not None:
            match_shape(info.values, value, self.sizes, what)
        elif isinstance(info, PrimStructInfo) and info.value is not None:
            match_shape((info.value,), (value,), self.sizes, what)

    def _match_tensor(self, info: TensorStructInfo, value: Any, what: str) -> None:
        if not isinstance(value, np.ndarray) or value.dtype != dt.to_numpy(info.dtype):
            got = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
            raise InterpreterError(f"{what}: got {got}; expected an array of {info.dtype}")
        if info.shape is not None:
            match_shape(info.shape, value.shape, self.sizes, what)

    # -- expressions

    def value(self, e: Any) -> Any:
        if isinstance(e, Var):
            if id(e) not in self.values:
                raise InterpreterError(f"variable {e.name!r} is used before it is bound")
            return self.values[id(e)]
        if isinstance(e, Call):
            return self._call(e)
        if isinstance(e, Tuple):
            return tuple(map(self.value, e.fields))
        if isinstance(e, TupleGetItem):
            return self.value(e.tuple_value)[e.index]
        if isinstance(e, Constant):
            return e.data
        if isinstance(e, ShapeExpr):
            return tuple(map(self.size, e.values))
        if isinstance(e, PrimValue):
            return self.size(e.value)
        if isinstance(e, StringImm | DataTypeImm):
            return e.value
        raise InterpreterError(f"a graph expression of type {type(e).__name__} has no meaning here")

    def size(self, expr: PrimExpr) -> Any:
        return evaluate(expr, self.sizes)

    def _call(self, call: Call) -> Any:
        target = call.target
        if isinstance(target, GlobalVar):
            return self._call_function(target, [self.value(a) for a in call.args])
        if isinstance(target, ExternFunc):
            result = self._extern(target)(*map(self.value, call.args))
            return () if is_void(call.out_info) else result
        if target.name == "call_tir_inplace":
            return self._call_tir(call, list(call.attrs["inplace_indices"]))
        if target.name in ("call_tir", "call_dps_packed"):
            return self._call_tir(call, [])
        if target.name == "builtin.alloc_tensor":
            return self._workspace_tensor(call)
        if target.name == "builtin.zeroed_tensor":
            return np.zeros(self.value(call.args[0]), dt.to_numpy(call.attrs["dtype"]))
        return None if target.name == "builtin.barrier" else self._operator(call, target)

    def _call_function(self, target: GlobalVar, args: list[Any]) -> Any:
        callee = self.mod[target]
        if isinstance(callee, PrimFunc):
            return self._kernel(callee, args)
        return run_function(self.mod, target.name, *args, externs=self.externs, kernels=self.kernels)

    def _kernel(self, func: PrimFunc, args: list[Any]) -> None:
        """Run a direct call of a tensor function, as made by PlanMemory: buffers (reshaped), scalars, then sizes."""
        count = len(func.buffers)
        names = scalar_parameters(func)
        env = {id(v): number for v, number in zip(names, args[count:], strict=True)}
        shapes = [tuple(evaluate(s, env) for s in b.shape) for b in func.buffers]
        arrays = {id(b): a.reshape(shape) for b, a, shape in zip(func.buffers, args, shapes)}
        self.kernels(func, *(arrays[id(p)] if isinstance(p, Buffer) else env[id(p)] for p in func.params))

    def _workspace_tensor(self, call: Call) -> np.ndarray:
        """A view of the workspace; it may overlap tensors that are no longer live."""
        (shape,), dtype = (self.value(a) for a in call.args), dt.to_numpy(call.attrs["dtype"])
        begin = self.size(as_expr(call.attrs["offset"]))
        end = begin + math.prod(shape) * dtype.itemsize
        if end > len(self.workspace):
            raise InterpreterError(f"bytes {begin} to {end} are outside the workspace of {len(self.workspace)}")
        return self.workspace[begin:end].view(dtype).reshape(shape)

    def _extern(self, target: ExternFunc) -> Callable[..., Any]:
        if target.name not in self.externs:
            raise InterpreterError(
                f"the function {target.name!r} is not given; got {', '.join(self.externs) or 'none'}"
            )
        return self.externs[target.name]

    def _call_tir(self, call: Call, inplace: list[int]) -> Any:
        """Run a destination-passing call: output i is a new array, or the input ``inplace[i]`` unless that is -1."""
        target, inputs, *scalars = call.args
        arrays = list(self.value(inputs))
        infos = call.out_info.fields if isinstance(call.out_info, TupleStructInfo) else (call.out_info,)
        places = inplace or [-1] * len(infos)
        outputs = [arrays[k] if k >= 0 else self.allocate(info) for k, info in zip(places, infos, strict=True)]
        fresh = [out for out, k in zip(outputs, places) if k < 0]
        numbers = [n for s in scalars for n in self.value(s)]
        if isinstance(target, ExternFunc):
            self._extern(target)(*arrays, *fresh, *numbers)
        else:
            self.kernels(self.mod[target], *arrays, *fresh, *numbers)
        return tuple(outputs) if isinstance(call.out_info, TupleStructInfo) else outputs[0]

    def allocate(self, info: StructInfo | None) -> np.ndarray:
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise InterpreterError("the result of call_tir needs a tensor of known shape as out_sinfo")
        return np.zeros(tuple(map(self.size, info.shape)), dt.to_numpy(info.dtype))

    def _operator(self, call: Call, op: Op) -> Any:
        """Run a graph operator: the tensor function of its tensor expression, or a reshape for a view operator."""
        if op.name in VIEW_OPERATORS and isinstance(call.struct_info, TensorStructInfo) and call.struct_info.shape:
            return self.value(call.args[0]).reshape(tuple(map(self.size, call.struct_info.shape)))
        operator = get_operator(op.name)
        lowered = lower_te(operator.te, operator.arg_names, call.args, call.attrs)
        arrays = [self.value(e) for e in lowered.inputs]
        infos = lowered.out_info.fields if isinstance(lowered.out_info, TupleStructInfo) else (lowered.out_info,)
        places = lowered.inplace or [-1] * len(infos)
        outputs = [arrays[k] if k >= 0 else self.allocate(info) for k, info in zip(places, infos, strict=True)]
        fresh = [out for out, k in zip(outputs, places, strict=True) if k < 0]
        self.kernels(lowered.func, *arrays, *fresh, *map(self.size, lowered.scalars))
        return tuple(outputs) if isinstance(lowered.out_info, TupleStructInfo) else outputs[0]
