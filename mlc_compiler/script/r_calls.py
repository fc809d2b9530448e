"""Parser of graph expressions: operators, calls of functions, tuples, constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import dtype as dt
from ..ir.expr import FloatImm, IntImm, PrimExpr
from ..ir.module import GlobalVar
from ..relax.info import make_tuple, prim_value, scalar_constant, shape_expr
from ..relax.nodes import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Op,
    PrimValue,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
)
from ..relax.ops import OPERATORS, get_operator
from .relax_printer import DESTINATION_PASSING
from .scope import Namespace, Scope
from .source import Source, describe
from .struct_infos import StructInfoReader

_INFOS = ("Tensor", "Tuple", "Shape", "Prim", "Object")
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_OTHER_NAMES = {"alloc_tensor": "zeros", "nn.dense": "linear"}
_IMPLIED = [
    ("nn.layer_norm", "center", True),
    ("nn.layer_norm", "scale", True),
    ("nn.group_norm", "center", True),
    ("nn.group_norm", "scale", True),
    ("strided_slice", "assume_inbound", False),
]
"""``(operator, attribute, value)``: attributes of other dialects that are dropped; only this value is supported."""
EFFECTS = ("builtin.barrier",)
"""Operators that are called for their side effects and return nothing."""
_OUT_INFO = ("out_sinfo", "out_ty")


class GraphEvaluator(StructInfoReader):
    """Evaluates graph expressions. ``emit`` binds a call nested in another expression to a new variable."""

    def __init__(self, source: Source, scope: Scope, constants: Sequence[np.ndarray]):
        super().__init__(source, scope)
        self.constants = constants

    def emit(self, node: ast.AST, value: Call) -> Expr:
        """Bind ``value`` to a new variable."""
        raise self.error(node, "a call cannot stand here")

    # -- values

    def graph(self, node: ast.AST, value: Any, dtype: str | None = None) -> Expr:
        """Convert a value to a graph expression other than a call; a Python number becomes a constant of ``dtype``."""
        if isinstance(value, Call):
            return self.emit(node, value)
        if isinstance(value, Expr):
            return value
        if isinstance(value, tuple | list):
            return self._graph_tuple(node, value)
        if isinstance(value, PrimExpr):
            return prim_value(value)
        if isinstance(value, bool | int | float):
            kind = dtype or ("float32" if isinstance(value, float) else "int64")
            return self.attempt(node, scalar_constant, value, kind)
        raise self.error(node, f"expected a graph value, got {describe(value)}")

    def _graph_tuple(self, node: ast.AST, values: Sequence[Any]) -> Expr:
        if values and all(isinstance(v, PrimExpr | int) and not isinstance(v, bool) for v in values):
            return shape_expr(values)
        fields = tuple(self.graph(node, v) for v in values)
        known = all(f.struct_info is not None for f in fields)
        return make_tuple(fields) if known else Tuple(fields)

    def item(self, node: ast.Subscript, base: Any) -> Any:
        if isinstance(base, Call):
            base = self.emit(node, base)
        if isinstance(base, tuple) and any(isinstance(v, Expr) for v in base):
            base = self._graph_tuple(node, base)
        if not isinstance(base, Expr):
            return super().item(node, base)
        index = self.value(node.slice)
        info = base.struct_info
        if (
            not isinstance(index, int)
            or not isinstance(info, TupleStructInfo)
            or not -len(info.fields) <= index < len(info.fields)
        ):
            raise self.error(node, f"cannot take item {ast.unparse(node.slice)} of {describe(base)}; expected a tuple")
        index %= len(info.fields)
        return TupleGetItem(base, index, info.fields[index])

    def subscript_of_name(self, node: ast.Subscript, base: Namespace) -> Any:
        if base.path == "metadata":
            return Namespace("metadata.constants")
        if base.path == "metadata.constants":
            index = self.value(node.slice)
            if not isinstance(index, int) or not 0 <= index < len(self.constants):
                raise self.error(
                    node,
                    f"constant {index} is not given; got {len(self.constants)} constants",
                    hint="those of a file NAME.py that `compile --debug-dump` wrote are in NAME.npz beside it",
                )
            return _constant(self.constants[index])
        return super().subscript_of_name(node, base)

    def operate(self, node: ast.AST, op: str, a: Any, b: Any) -> Any:
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return super().operate(node, op, a, b)
        if op not in _ARITHMETIC:
            raise self.error(node, f"operator {op!r} is not defined for tensors; use the R. operator")
        return self.operator_call(node, _ARITHMETIC[op], [a, b], {})

    # -- calls

    def call(self, node: ast.Call, path: str) -> Any:
        if not path.startswith("R."):
            return super().call(node, path)
        name = path.removeprefix("R.")
        args, kwargs = self.arguments(node)
        if name in _INFOS:
            return self.info_call(node, name, args, kwargs)
        if name in DESTINATION_PASSING:
            return self._destination_passing(node, name, args, kwargs)
        if name in ("call_packed", "call_pure_packed"):
            return self._call_packed(node, args, kwargs, pure=name == "call_pure_packed")
        if name in _IMMEDIATES:
            return self.attempt(node, _IMMEDIATES[name], *args, **kwargs)
        if name == "tuple":
            return self._graph_tuple(node, args)
        return self.operator_call(node, name, args, kwargs)

    def call_value(self, node: ast.Call, function: Any) -> Any:
        if not isinstance(function, GlobalVar):
            return super().call_value(node, function)
        args, kwargs = self.arguments(node)
        out_info = self._out_info(node, kwargs)
        return Call(function, tuple(self.graph(node, a) for a in args), kwargs, out_info, out_info)

    def operator_call(self, node: ast.AST, name: str, args: list[Any], kwargs: dict[str, Any]) -> Call:
        """Build a call of an operator: positional arguments are graph values, keyword arguments are attributes.

        For a registered operator, graph values may be passed by keyword and attributes by position, too.
        """
        out_info = self._out_info(node, kwargs)
        name = _OTHER_NAMES.get(name, name)
        operator = OPERATORS.get(name)
        names = operator.arg_names if operator else ()
        named = [kwargs.pop(n) for n in names[len(args) :] if n in kwargs]
        given = [*args, *(value for value in named if value is not None)]
        count = len(names) if operator else len(given)
        attrs = (dict(zip(operator.attr_names, given[count:])) if operator else {}) | kwargs
        attrs = {k: v for k, v in attrs.items() if (name, k, v) not in _IMPLIED}
        dtype = next((d for d in map(_tensor_dtype, given) if d), None)
        graph_args = tuple(self.graph(node, a, dtype) for a in given[:count])
        attrs = {k: self.attempt(node, _attribute, k, v) for k, v in attrs.items()}
        if operator:
            attrs = operator.spelled_out(graph_args, {k: _number(v) for k, v in attrs.items()})
        return Call(Op(name), graph_args, attrs, out_info)

    def _out_info(self, node: ast.AST, kwargs: dict[str, Any]) -> StructInfo | None:
        found = [kwargs.pop(k) for k in _OUT_INFO if k in kwargs]
        return self.as_info(node, found[0]) if found else None

    def _destination_passing(self, node: ast.Call, name: str, args: list[Any], kwargs: dict[str, Any]) -> Call:
        """Parse ``R.call_tir(function, inputs, out_sinfo=…)``; an older form has a shape and ``dtype=`` instead."""
        if len(args) < 2:
            raise self.error(node, f"R.{name} takes a function and a tuple of inputs")
        function = args[0]
        if isinstance(function, str):
            function, name = ExternFunc(function), "call_dps_packed"
        if not isinstance(function, GlobalVar | ExternFunc):
            raise self.error(
                node.args[0], f"R.{name}: expected a function of the module or a name, got {describe(function)}"
            )
        scalars = kwargs.pop("tir_vars", None)
        out_info = self._out_info(node, kwargs) or self._old_out_info(node, args[2:], kwargs.pop("dtype", None))
        tail = () if scalars is None else (self.graph(node, scalars),)
        attrs = {k: self.attempt(node, _attribute, k, v) for k, v in kwargs.items()}
        return Call(Op(name), (function, self._inputs(node, args[1]), *tail), attrs, out_info, out_info)

    def _inputs(self, node: ast.AST, value: Any) -> Expr:
        expr = Tuple(()) if isinstance(value, tuple | list) and not value else self.graph(node, value)
        if isinstance(expr, Tuple) or isinstance(expr.struct_info, TupleStructInfo):
            return expr
        return make_tuple([expr])

    def _old_out_info(self, node: ast.AST, rest: list[Any], dtype: Any) -> StructInfo:
        if not rest:
            raise self.error(node, "the results are not described; expected out_sinfo=R.Tensor(shape, dtype)")
        shape = rest[0]
        if isinstance(shape, StructInfo) or dtype is None:
            return self.as_info(node, shape)
        if isinstance(dtype, list | tuple):
            return TupleStructInfo(tuple(self.tensor(node, s, d) for s, d in zip(shape, dtype)))
        return self.tensor(node, shape, dtype)

    def _call_packed(self, node: ast.Call, args: list[Any], kwargs: dict[str, Any], pure: bool) -> Call:
        infos = kwargs.pop("sinfo_args", kwargs.pop("ty_args", ()))
        listed = infos if isinstance(infos, tuple | list) else (infos,)
        out_info = self.as_info(node, listed[0]) if listed else None
        if not args or not isinstance(args[0], str):
            raise self.error(node, "R.call_packed takes the name of a function first")
        graph_args = tuple(self.graph(node, a) for a in args[1:])
        return Call(ExternFunc(args[0], pure), graph_args, kwargs, out_info, out_info)


def derive(value: Expr) -> Expr:
    """Add the structure info to an expression, where it can be derived from the expression alone."""
    if isinstance(value, Call) and value.struct_info is None:
        if value.out_info is not None:
            return replace(value, struct_info=value.out_info)
        if isinstance(value.target, Op) and value.target.name not in EFFECTS:
            return replace(value, struct_info=get_operator(value.target.name).infer(value))
    return value


def _tensor_dtype(value: Any) -> str | None:
    info = value.struct_info if isinstance(value, Expr) else None
    return info.dtype if isinstance(info, TensorStructInfo) else None


def _number(value: Any) -> Any:
    """Replace immediates in an attribute of a registered operator by Python numbers."""
    if isinstance(value, tuple):
        return tuple(map(_number, value))
    if isinstance(value, IntImm | FloatImm):
        return bool(value.value) if value.dtype == "bool" else value.value
    return value


def _attribute(name: str, value: Any) -> Any:
    """Convert an operator attribute to a Python value or a tuple of these; ``out_dtype=None`` becomes "void"."""
    if isinstance(value, list | tuple):
        return tuple(_attribute("", v) for v in value)
    if isinstance(value, PrimValue) and isinstance(value.value, IntImm | FloatImm):
        return value.value.value
    if isinstance(value, Namespace):
        raise TypeError(f"{value.path} is no value of an attribute")
    return "void" if name == "out_dtype" and value in (None, "") else value


def _constant(data: np.ndarray) -> Constant:
    dtype = "bool" if data.dtype == np.bool_ else str(data.dtype)
    return Constant(data, TensorStructInfo(tuple(IntImm(int(s)) for s in data.shape), dtype))


def _const(value: Any, dtype: str | None = None) -> Constant:
    plain = value.value if isinstance(value, IntImm | FloatImm) else value
    if not isinstance(plain, bool | int | float | list | tuple | np.ndarray | np.generic):
        raise TypeError(f"expected numbers, got {describe(plain)}")
    return _constant(np.array(plain, dtype=dt.to_numpy(dtype) if dtype else _default_dtype(plain)))


def _default_dtype(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype
    kind = np.array(value).dtype.kind
    return {"f": np.float32, "i": np.int32, "b": np.bool_}.get(kind, np.float32)


_IMMEDIATES: dict[str, Callable[..., Expr]] = {
    "const": _const,
    "shape": shape_expr,
    "ShapeExpr": shape_expr,
    "prim_value": prim_value,
    "str": StringImm,
    "dtype": DataTypeImm,
}
