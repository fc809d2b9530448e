"""Lowering of tensor expressions on graph values to tensor functions and their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.expr import PrimExpr, Var, const
from ..ir.simplify import Analyzer, key, simplify
from ..ir.visitor import free_vars, substitute
from ..tir import te
from ..tir.nodes import PrimFunc
from .info import get_item, info_of
from .nodes import (
    Constant,
    Expr,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)

TensorExpression = Callable[..., te.Tensor | Sequence[te.Tensor]]


class NoKernel(Exception):
    """Raised by a back end's kernel of an operator for arguments that it does not support (see ``Legalize``)."""


@dataclass(frozen=True)
class TensorCall:
    """``func(inputs, outputs, scalars)`` with the structure info of the outputs, in the caller's symbolic sizes.

    assumptions: pairs of the caller's sizes that the function assumes to be equal. inplace: for each result the
    position of the input that it overwrites, or -1; empty when all results are new.
    """

    func: PrimFunc
    inputs: tuple[Expr, ...]
    scalars: tuple[PrimExpr, ...]
    out_info: StructInfo
    assumptions: tuple[tuple[PrimExpr, PrimExpr], ...] = ()
    inplace: tuple[int, ...] = ()


@dataclass
class _Arguments:
    """Converts graph values to te values. ``fresh``: symbolic sizes are replaced by new variables."""

    fresh: bool
    sizes: dict[Var, Var] = field(default_factory=dict)
    placeholders: list[te.Tensor] = field(default_factory=list)

    def convert(self, value: Any, name: str) -> Any:
        if isinstance(value, PrimExpr):
            return self.renew(value)
        if isinstance(value, tuple | list):
            return tuple(self.convert(v, name) for v in value)
        return self._graph_value(value, name) if isinstance(value, Expr) else value

    def _graph_value(self, value: Expr, name: str) -> Any:
        if isinstance(value, ShapeExpr):
            return tuple(self.renew(v) for v in value.values)
        if isinstance(value, PrimValue):
            return self.renew(value.value)
        if isinstance(value, Tuple):
            return tuple(self.convert(f, f"{name}{i}") for i, f in enumerate(value.fields))
        if isinstance(value, Constant) and value.data.ndim == 0:
            return const(value.data.item(), str(value.data.dtype))
        return self._by_info(value, info_of(value), name)

    def _by_info(self, value: Expr, info: StructInfo, name: str) -> Any:
        if isinstance(info, TensorStructInfo) and info.shape is not None:
            return self._placeholder(info.shape, info.dtype, name)
        if isinstance(info, TupleStructInfo):
            return tuple(self.convert(get_item(value, i), f"{name}{i}") for i in range(len(info.fields)))
        if isinstance(info, ShapeStructInfo) and info.values is not None:
            return tuple(self.renew(v) for v in info.values)
        if isinstance(info, PrimStructInfo) and info.value is not None:
            return self.renew(info.value)
        raise ValueError(f"argument {name!r}: got {type(info).__name__}; expected a tensor, shape or scalar")

    def _placeholder(self, shape: tuple[PrimExpr, ...], dtype: str, name: str) -> te.Tensor:
        tensor = te.placeholder([self.renew(s) for s in shape], dtype, name)
        self.placeholders.append(tensor)
        return tensor

    def renew(self, expr: PrimExpr) -> PrimExpr:
        if not self.fresh:
            return expr
        for var in free_vars(expr):
            self.sizes.setdefault(var, Var(var.name, var.dtype))
        return substitute(expr, self.sizes)

    def original(self, expr: PrimExpr) -> PrimExpr:
        return simplify(substitute(expr, {new: old for old, new in self.sizes.items()}))


def infer_te(f: TensorExpression, names: Sequence[str], args: Sequence[Any], attrs: Mapping[str, Any]) -> StructInfo:
    """The structure info of the result of ``f(*args, **attrs)``."""
    arguments = _Arguments(fresh=False)
    with te.shapes_only():
        result = f(*_converted(arguments, names, args), **attrs)
    return _result_info(arguments, result)


def lower_te(f: TensorExpression, names: Sequence[str], args: Sequence[Any], attrs: Mapping[str, Any]) -> TensorCall:
    """Lower ``f(*args, **attrs)`` to a tensor function and its call.

    Its parameters are the tensors among the arguments (named by ``names``), the results, and then the symbolic sizes
    that are not the size of an axis of any of these.
    """
    arguments = _Arguments(fresh=True)
    with te.collect_assumptions() as assumptions:
        result = f(*_converted(arguments, names, args), **attrs)
    outputs = [result] if isinstance(result, te.Tensor) else list(result)
    scalars = _unbound(arguments, [*arguments.placeholders, *outputs])
    updates = [o for o in outputs if o.is_update]
    buffers = [*arguments.placeholders, *(o for o in outputs if not o.is_update)]
    func = te.create_prim_func([*buffers, *(arguments.sizes[v] for v in scalars)], updates=updates)
    equal = tuple((arguments.original(a), arguments.original(b)) for a, b in assumptions)
    info = _result_info(arguments, result)
    inplace = _inplace_indices(arguments.placeholders, outputs) if updates else ()
    return TensorCall(func, tuple(tensor_inputs(args)), tuple(scalars), info, equal, inplace)


def size_checks(what: str, call: TensorCall) -> list[tuple[str, PrimExpr, PrimExpr]]:
    """The unproved size assumptions of a tensor function, for the attribute ``size_checks`` of its caller."""
    analyzer = Analyzer()
    return [(what, a, b) for a, b in call.assumptions if not analyzer.prove_equal(a, b)]


def _inplace_indices(placeholders: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> tuple[int, ...]:
    positions = {id(p.buffer): i for i, p in enumerate(placeholders)}
    return tuple(positions[id(o.buffer)] if o.is_update else -1 for o in outputs)


def _converted(arguments: _Arguments, names: Sequence[str], args: Sequence[Any]) -> list[Any]:
    padded = [*names, *(f"arg{i}" for i in range(len(names), len(args)))]
    return [arguments.convert(a, n) for a, n in zip(args, padded, strict=False)]


def _result_info(arguments: _Arguments, result: te.Tensor | Sequence[te.Tensor]) -> StructInfo:
    if isinstance(result, te.Tensor):
        return TensorStructInfo(tuple(arguments.original(s) for s in result.shape), result.dtype)
    return TupleStructInfo(tuple(_result_info(arguments, r) for r in result))


def _unbound(arguments: _Arguments, buffers: Sequence[te.Tensor]) -> list[Var]:
    """The caller's variables that the function uses and that are not the size of any buffer axis."""
    bound = {id(s) for b in buffers for s in b.shape if isinstance(s, Var)}
    used: set[int] = set()
    for tensor in _reachable(buffers):
        used |= {id(v) for v in free_vars((tensor.shape, tensor.body))}
    return [old for old, new in arguments.sizes.items() if id(new) in used and id(new) not in bound]


def _reachable(tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    found: dict[int, te.Tensor] = {}
    stack = list(tensors)
    while stack:
        tensor = stack.pop()
        if id(tensor) not in found:
            found[id(tensor)] = tensor
            stack.extend(tensor.inputs)
    return list(found.values())


def tensor_inputs(value: Any) -> list[Expr]:
    """The tensor arguments of a call, tuples flattened, in the order of the tensor function's parameters."""
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensor_inputs(v)]
    if isinstance(value, Tuple):
        return tensor_inputs(value.fields)
    if not isinstance(value, Expr) or (isinstance(value, Constant) and value.data.ndim == 0):
        return []
    if isinstance(value.struct_info, TupleStructInfo):
        return tensor_inputs([get_item(value, i) for i in range(len(value.struct_info.fields))])
    return [value] if isinstance(value.struct_info, TensorStructInfo) else []


def signature(value: Any) -> Any:
    """A hashable value, equal for arguments that lower to the same tensor function (symbolic sizes by identity)."""
    if isinstance(value, PrimExpr):
        return key(value)
    if isinstance(value, tuple | list):
        return tuple(signature(v) for v in value)
    if isinstance(value, Constant) and value.data.ndim == 0:
        return ("const", value.data.tobytes(), str(value.data.dtype))
    if isinstance(value, ShapeExpr):
        return ("shape", signature(value.values))
    if isinstance(value, PrimValue):
        return ("prim", signature(value.value))
    if isinstance(value, Tuple):
        return ("tuple", signature(value.fields))
    return info_signature(value.struct_info) if isinstance(value, Expr) else value


def info_signature(info: StructInfo | None) -> Any:
    """A hashable value, equal for equal structure info (symbolic sizes by identity)."""
    if isinstance(info, TensorStructInfo):
        return ("tensor", info.shape if info.shape is None else key(info.shape), info.dtype)
    if isinstance(info, TupleStructInfo):
        return ("tuple", *(info_signature(f) for f in info.fields))
    if isinstance(info, ShapeStructInfo):
        return ("shape", signature(info.values))
    return (type(info).__name__, signature(getattr(info, "value", None)))
