"""Constant folding in graph functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..interp import run_function
from ..ir.expr import Var as SizeVar
from ..ir.module import IRModule
from ..ir.visitor import walk
from ..relax import nodes as rx
from ..relax.dataflow import Mutations, is_op, is_pure, replace_vars, tir_call
from .base import Pass


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace pure calls with constant arguments by their results, computed by the interpreter.

    A call is left alone when its result has more elements than its constant arguments together (such as a broadcast
    scalar), when the arguments exceed ``max_elements``, or when a symbolic size occurs.
    """

    name = "fold-constants"

    max_elements: int = 4096

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated(
            {name: _Function(f, mod, self.max_elements).run() for name, f in mod.of_type(rx.Function).items()}
        )


class _Function:
    def __init__(self, func: rx.Function, mod: IRModule, max_elements: int):
        self.func = func
        self.mod = mod
        self.max_elements = max_elements
        self.mutations = Mutations(func.bindings, mod.functions)
        self.known: dict[int, rx.Expr] = {}

    def run(self) -> rx.Function:
        blocks = tuple(self._block(b) for b in self.func.blocks)
        return replace(self.func, blocks=blocks)

    def _block(self, block: rx.BindingBlock) -> rx.BindingBlock:
        kept = []
        for binding in block.bindings:
            value = replace_vars(binding.value, self.known)
            may_fold = not binding.matched and not self.mutations.is_written(binding.var)
            value = self._fold(value) if may_fold else value
            is_known = may_fold and _is_constant(value)
            if is_known:
                self.known[id(binding.var)] = value
            if not is_known or not binding.var.dataflow:
                kept.append(binding if value is binding.value else replace(binding, value=value))
        return replace(block, bindings=tuple(kept))

    def _fold(self, value: rx.Expr) -> rx.Expr:
        if isinstance(value, rx.TupleGetItem) and isinstance(value.tuple_value, rx.Tuple):
            return value.tuple_value.fields[value.index]
        if not isinstance(value, rx.Call) or not self._is_foldable(value):
            return value
        result = rx.Var("result", value.struct_info)
        block = rx.BindingBlock((rx.Binding(result, value),))
        wrapper = self.mod.unique_name("constant")
        return _as_constant(run_function(self.mod.with_function(wrapper, rx.Function((), (block,), result)), wrapper))

    def _is_foldable(self, call: rx.Call) -> bool:
        if not is_pure(call, self.mod.functions) or is_op(call, "call_dps_packed"):
            return False
        tir = tir_call(call)
        args = tir.inputs if tir else call.args
        if not all(isinstance(a, rx.ShapeExpr | rx.PrimValue | rx.Tuple) or _is_constant(a) for a in args):
            return False
        if any(isinstance(node, SizeVar | rx.Var) for node in walk((call.args, call.out_info, call.struct_info))):
            return False
        given = sum(node.data.size for node in walk(args) if isinstance(node, rx.Constant))
        return 0 < given <= self.max_elements and _elements(call.struct_info) <= given


def _is_constant(value: rx.Expr) -> bool:
    if isinstance(value, rx.Tuple):
        return all(map(_is_constant, value.fields))
    return isinstance(value, rx.Constant)


def _elements(info: rx.StructInfo | None) -> float:
    """The number of elements of a value with this structure info; infinity when it is unknown."""
    if isinstance(info, rx.TupleStructInfo):
        return sum(map(_elements, info.fields))
    if not isinstance(info, rx.TensorStructInfo) or info.shape is None:
        return math.inf
    return math.prod(int(s) for s in info.shape)  # type: ignore[call-overload]


def _as_constant(value: Any) -> rx.Expr:
    if isinstance(value, tuple):
        fields = tuple(map(_as_constant, value))
        return rx.Tuple(fields, rx.TupleStructInfo(tuple(f.struct_info for f in fields)))  # type: ignore[misc]
    return rx.constant(value)
