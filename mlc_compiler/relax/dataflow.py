"""Utilities of graph passes: ``call_tir``, uses of variables, alias analysis of in-place writes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.module import GlobalVar
from . import nodes as rx
from .ops import OPERATORS, VIEW_OPERATORS

# Operators with side effects, which are kept even if their result is unused.
IMPURE_OPS = frozenset({"call_tir_inplace", "call_inplace_packed", "call_packed", "print", "assert_op"})


@dataclass(frozen=True)
class TirCall:
    """The parts of a ``call_tir(callee, inputs, scalars)``."""

    callee: str
    inputs: tuple[rx.Expr, ...]
    scalars: tuple[PrimExpr, ...]
    out_info: rx.StructInfo | None

    @property
    def outputs(self) -> tuple[rx.StructInfo | None, ...]:
        return self.out_info.fields if isinstance(self.out_info, rx.TupleStructInfo) else (self.out_info,)


def is_op(value: Any, *names: str) -> bool:
    """Whether ``value`` calls one of these graph operators."""
    return isinstance(value, rx.Call) and isinstance(value.target, rx.Op) and value.target.name in names


def tir_call(value: Any, op: str = "call_tir") -> TirCall | None:
    """Match a ``call_tir`` (or the op ``op``) of a function of the module; None for anything else."""
    if not is_op(value, op) or not isinstance(value.args[0], GlobalVar):
        return None
    packed = value.args[1]
    inputs = packed.fields if isinstance(packed, rx.Tuple) else (packed,)
    scalars = value.args[2].values if len(value.args) > 2 else ()
    return TirCall(value.args[0].name, inputs, scalars, value.out_info)


def make_tir_call(
    callee: str, inputs: tuple[rx.Expr, ...], scalars: tuple[PrimExpr, ...], out_info: rx.StructInfo
) -> rx.Call:
    """Build a ``call_tir``; the inverse of :func:`tir_call`."""
    shape = (rx.ShapeExpr(scalars, rx.ShapeStructInfo(scalars, len(scalars))),) if scalars else ()
    info = rx.TupleStructInfo(tuple(getattr(e, "struct_info", None) or rx.ObjectStructInfo() for e in inputs))
    args = (GlobalVar(callee), rx.Tuple(inputs, info), *shape)
    return rx.Call(rx.Op("call_tir"), args, out_info=out_info, struct_info=out_info)


def used_vars(expr: Any) -> Iterator[rx.Var]:
    """The graph variables that an expression uses, once per use."""
    if isinstance(expr, rx.Var):
        yield expr
    elif isinstance(expr, rx.Tuple):
        for field in expr.fields:
            yield from used_vars(field)
    elif isinstance(expr, rx.TupleGetItem):
        yield from used_vars(expr.tuple_value)
    elif isinstance(expr, rx.Call):
        for arg in expr.args:
            yield from used_vars(arg)


def replace_vars(expr: Any, mapping: Mapping[int, rx.Expr]) -> Any:
    """The expression with variables (by ``id``) replaced; the same object when none of them occurs."""
    if isinstance(expr, rx.Var):
        return mapping.get(id(expr), expr)
    if not any(id(v) in mapping for v in used_vars(expr)):
        return expr
    if isinstance(expr, rx.Tuple):
        return replace(expr, fields=tuple(replace_vars(f, mapping) for f in expr.fields))
    if isinstance(expr, rx.TupleGetItem):
        return replace(expr, tuple_value=replace_vars(expr.tuple_value, mapping))
    return replace(expr, args=tuple(replace_vars(a, mapping) for a in expr.args))


def called_functions(value: Any) -> Iterator[str]:
    """The names of the module's functions to which an expression refers."""
    if isinstance(value, GlobalVar):
        yield value.name
    elif isinstance(value, rx.Call):
        yield from called_functions(value.target)
        for arg in value.args:
            yield from called_functions(arg)


def is_pure(value: rx.Expr, functions: Any) -> bool:
    """Whether the value has no side effects: it may be removed when unused, and equal values may be merged."""
    if not isinstance(value, rx.Call):
        return True
    if isinstance(value.target, GlobalVar):
        callee = functions.get(value.target.name)
        return isinstance(callee, rx.Function) and callee.is_pure
    if isinstance(value.target, rx.ExternFunc):
        return value.target.pure
    return isinstance(value.target, rx.Op) and value.target.name not in IMPURE_OPS and not _updated_arguments(value)


class Mutations:
    """In-place writes to tensors, by position in a list of bindings.

    The result of an in-place call aliases the tensor it wrote, a tuple its fields, a reshape its argument; aliases
    share one *root*. Unknown impure calls are assumed to write all of their arguments.
    """

    def __init__(self, bindings: Iterable[rx.Binding], functions: Any):
        self.parents: dict[int, int] = {}
        writes: list[tuple[rx.Var, int]] = []
        for position, binding in enumerate(bindings):
            if isinstance(binding.value, rx.Var | rx.Tuple | rx.TupleGetItem) or is_op(binding.value, *VIEW_OPERATORS):
                self._alias(binding.var, used_vars(binding.value))
            elif not is_pure(binding.value, functions):
                written = _written(binding.value)
                self._alias(binding.var, written)
                writes += [(var, position) for var in written]
        self.positions: dict[int, list[int]] = {}
        for var, position in writes:
            self.positions.setdefault(self._root(var), []).append(position)

    def _root(self, var: rx.Var) -> int:
        root = id(var)
        while root in self.parents:
            root = self.parents[root]
        return root

    def _alias(self, var: rx.Var, others: Iterable[rx.Var]) -> None:
        for other in others:
            a, b = self._root(var), self._root(other)
            if a != b:
                self.parents[a] = b

    def version(self, var: rx.Var, position: int) -> int:
        """The number of writes to the tensor before the binding at ``position``."""
        return bisect_left(self.positions.get(self._root(var), ()), position)

    def is_written(self, var: rx.Var) -> bool:
        """Whether the tensor is ever written in place."""
        return bool(self.positions) and self._root(var) in self.positions

    def may_delay(self, value: rx.Expr, start: int, end: int) -> bool:
        """Whether ``value`` can be computed at ``end`` instead of ``start``: its inputs are not written in between."""
        if not self.positions:
            return True
        return all(self.version(v, start) == self.version(v, end) for v in used_vars(value))


def _updated_arguments(call: rx.Call) -> list[Any]:
    """The arguments that an operator writes in place."""
    operator = OPERATORS.get(call.target.name) if isinstance(call.target, rx.Op) else None
    return [call.args[i] for i in operator.updated_positions] if operator is not None else []


def _written(value: Any) -> list[rx.Var]:
    updated = _updated_arguments(value) if isinstance(value, rx.Call) else []
    if updated:
        return [v for argument in updated for v in used_vars(argument)]
    call = tir_call(value, "call_tir_inplace")
    if call is None:
        return list(used_vars(value))
    indices = [int(i) for i in value.attrs.get("inplace_indices", ())]
    return [v for i in indices if i >= 0 for v in used_vars(call.inputs[i])]
