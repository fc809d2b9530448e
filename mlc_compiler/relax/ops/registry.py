"""Registration of operators: a name and a tensor expression, from which shapes, dtypes and lowering are derived."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import numpy as np

from mlc_errors import MLCError

from ...ir import dtype as dt
from ...ir.expr import IntImm, PrimExpr, Var
from ...tir import te
from ..info import make_tuple, prim_value, scalar_constant, shape_expr, show_shape
from ..nodes import Call, Expr, Op, StructInfo, TensorStructInfo, TupleStructInfo
from ..tensor_call import TensorExpression, infer_te, signature

Shape = tuple[PrimExpr, ...]
Tensors = tuple[te.Tensor, ...]
CACHED_RESULTS = 4096
Explicit = Callable[[Sequence[Expr], Mapping[str, Any]], Mapping[str, Any]]


class OperatorError(MLCError, ValueError):
    """An unknown operator, or an operator called with invalid arguments."""


@dataclass(frozen=True, eq=False)
class Operator:
    """A graph operator.

    ``te`` builds the tensor expression from te tensors (positional) and attributes (keyword-only); the result's shape
    and dtype are those of the expression. ``kinds`` and ``attr_types`` are the annotations of the two. Calling the
    operator with graph values builds the ``Call``. ``explicit`` computes attributes whose default depends on the
    arguments' shapes, so that a call does not change its result when symbolic sizes become constant. ``updates`` names
    the arguments that the operator writes in place and returns. ``scalars`` names the integer arguments that are passed
    to the tensor function at run time: calls that differ only in these share one function.
    """

    name: str
    te: TensorExpression
    kinds: Mapping[str, Any]
    defaults: Mapping[str, Any]
    attr_types: Mapping[str, Any]
    explicit: Explicit | None = None
    updates: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    results: dict[Any, tuple[Any, StructInfo]] = field(default_factory=dict, repr=False)

    @property
    def arg_names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def doc(self) -> str:
        """The docstring of the operator."""
        return self.te.__doc__ or ""

    @property
    def attr_names(self) -> tuple[str, ...]:
        return tuple(self.defaults)

    @property
    def updated_positions(self) -> tuple[int, ...]:
        """The positions of the arguments that are written in place."""
        return tuple(self.arg_names.index(name) for name in self.updates)

    def __call__(self, *args: Any, **attrs: Any) -> Call:
        """``Call(Op(name), args, attrs)``: every attribute present, structure info derived."""
        arguments = self._arguments(args)
        attributes = self.spelled_out(arguments, self._attributes(attrs))
        call = Call(Op(self.name), arguments, attributes)
        return Call(call.target, call.args, call.attrs, None, self.infer(call))

    def spelled_out(self, args: Sequence[Expr], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes, with those that ``explicit`` computes from the arguments replaced."""
        return {**attrs, **(self.explicit(args, {**self.defaults, **attrs}) if self.explicit else {})}

    def infer(self, call: Call) -> StructInfo:
        """The structure info of a call. Raises OperatorError for invalid arguments."""
        identity = (signature(self._static(call.args)), tuple((k, _frozen(v)) for k, v in call.attrs.items()))
        if identity not in self.results:
            if len(self.results) >= CACHED_RESULTS:
                self.results.clear()
            self.results[identity] = (call, self._derive(call))
        return self.results[identity][1]

    def _static(self, args: Sequence[Any]) -> list[Any]:
        """The arguments except ``scalars``, on which the structure info of results does not depend."""
        return [a for i, a in enumerate(args) if self.arg_names[min(i, len(self.kinds) - 1)] not in self.scalars]

    def _derive(self, call: Call) -> StructInfo:
        try:
            self._check_types(call.attrs)
            info = infer_te(self.te, self.arg_names, call.args, call.attrs)
            _require_known_dtypes(info)
            return info
        except (ValueError, TypeError) as error:
            got = ", ".join(_show(a) for a in call.args)
            raise OperatorError(f"{self.name}({got}): {error}") from error

    def _arguments(self, args: Sequence[Any]) -> tuple[Expr, ...]:
        required = [n for n, optional in self._optional().items() if not optional]
        if not len(required) <= len(args) <= len(self.kinds):
            raise OperatorError(f"{self.name}: got {len(args)} arguments; expected ({', '.join(self.kinds)})")
        dtype = next((_dtype(a) for a in args if _dtype(a)), None)
        given = [(name, a) for name, a in zip(self.kinds, args, strict=False) if a is not None]
        return tuple(self._graph_value(name, a, dtype) for name, a in given)

    def _graph_value(self, name: str, value: Any, dtype: str | None) -> Expr:
        try:
            return _as_graph_value(self.kinds[name], value, dtype)
        except (TypeError, ValueError) as error:
            raise OperatorError(f"{self.name}: argument {name}: {error}") from error

    def _optional(self) -> dict[str, bool]:
        return {name: kind == te.Tensor | None for name, kind in self.kinds.items()}

    def _attributes(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(attrs) - set(self.defaults))
        missing = [n for n, d in self.defaults.items() if d is inspect.Parameter.empty and n not in attrs]
        if unknown or missing:
            wrong = f"unknown attribute {', '.join(unknown)}" if unknown else f"missing attribute {', '.join(missing)}"
            raise OperatorError(f"{self.name}: {wrong}; its attributes are {', '.join(self.defaults) or 'none'}")
        return {n: _plain(attrs.get(n, d)) for n, d in self.defaults.items()}

    def _check_types(self, attrs: Mapping[str, Any]) -> None:
        for name, annotation in self.attr_types.items():
            if name in attrs and not _fits(attrs[name], annotation):
                expected = annotation.__name__ if isinstance(annotation, type) else annotation
                raise TypeError(f"{name}: got {attrs[name]!r}; expected {expected}")


def operator(
    name: str, explicit: Explicit | None = None, updates: tuple[str, ...] = (), scalars: tuple[str, ...] = ()
) -> Callable[[TensorExpression], Operator]:
    """Decorator: define an operator by a tensor expression; keyword-only parameters are its attributes.

    Positional parameters are annotated with ``te.Tensor``, ``te.Tensor | None``, ``Tensors``, ``Shape`` or
    ``PrimExpr``. ``explicit``, ``updates``, ``scalars``: see ``Operator``.
    """

    def define(f: TensorExpression) -> Operator:
        parameters = inspect.signature(f, eval_str=True).parameters.values()
        positional = {p.name: p.annotation for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        attributes = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        types = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
        te_function = _with_tensors(f, tuple(positional.values()))
        return Operator(name, te_function, positional, attributes, types, explicit, updates, scalars)

    return define


def _with_tensors(f: TensorExpression, kinds: Sequence[Any]) -> TensorExpression:
    """Wrap ``f`` to convert scalar expressions among its arguments (lowered constants of shape ()) to tensors."""

    @wraps(f)
    def given(*args: Any, **attrs: Any) -> te.Tensor | Sequence[te.Tensor]:
        if len(args) > len(kinds):
            raise TypeError(f"got {len(args)} arguments; expected at most {len(kinds)}")
        return f(*(_as_tensors(kind, arg) for kind, arg in zip(kinds, args, strict=False)), **attrs)

    return given


def _as_tensors(kind: Any, arg: Any) -> Any:
    if kind == Tensors:
        return tuple(_as_tensors(te.Tensor, a) for a in arg)
    if kind is te.Tensor and isinstance(arg, tuple | list):
        raise TypeError("expected a tensor, got a tuple")
    return te.scalar(arg) if kind in (te.Tensor, te.Tensor | None) and isinstance(arg, PrimExpr) else arg


def _as_graph_value(kind: Any, value: Any, dtype: str | None) -> Expr:
    """Convert a Python value to a graph value for a parameter of this kind."""
    if isinstance(value, Expr):
        return value
    if kind is Shape:
        return shape_expr(value)
    if kind is Tensors:
        return make_tuple([_as_graph_value(te.Tensor, v, dtype) for v in value])
    if kind is PrimExpr or isinstance(value, PrimExpr):
        return prim_value(value)
    if isinstance(value, bool | int | float):
        return scalar_constant(value, dtype or ("float32" if isinstance(value, float) else "int64"))
    raise TypeError(f"got {type(value).__name__}; expected a graph value, shape or number")


def _dtype(value: Any) -> str | None:
    info = value.struct_info if isinstance(value, Expr) else None
    return info.dtype if isinstance(info, TensorStructInfo) else None


def _require_known_dtypes(info: StructInfo) -> None:
    """Raise ValueError for a tensor of an unknown dtype."""
    for tensor in info.fields if isinstance(info, TupleStructInfo) else (info,):
        if isinstance(tensor, TensorStructInfo):
            dt.bits(tensor.dtype)


def _plain(value: Any) -> Any:
    """Normalize an attribute value: lists to tuples, numpy scalars and immediates to Python numbers."""
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value.value if isinstance(value, IntImm) else value


def _fits(value: Any, annotation: Any) -> bool:
    """Whether an attribute has its annotated type; an int is accepted for float and bool."""
    if isinstance(annotation, UnionType):
        return any(_fits(value, option) for option in get_args(annotation))
    if get_origin(annotation) is tuple:
        return isinstance(value, tuple) and all(_fits(v, get_args(annotation)[0]) for v in value)
    if annotation in (None, NoneType):
        return value is None
    return isinstance(value, int | float if annotation is float else int if annotation is bool else annotation)


def _frozen(value: Any) -> Any:
    return (type(value).__name__, value)


def _show(value: Any) -> str:
    info = getattr(value, "struct_info", None)
    if isinstance(info, TensorStructInfo) and info.shape is not None:
        return f"{info.dtype}{show_shape(info.shape)}"
    if isinstance(info, TupleStructInfo):
        return f"{len(info.fields)} values"
    values = getattr(value, "values", None)
    if isinstance(values, tuple):
        return show_shape(values)
    return value.name if isinstance(value, Var) else type(value).__name__
