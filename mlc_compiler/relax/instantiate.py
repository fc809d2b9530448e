"""Inlining of graph functions: copies of their bindings with the parameters replaced by arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.expr import Var as SizeVar
from ..ir.visitor import Rewriter
from ..tir.calling import bind_sizes
from . import nodes as rx


def instantiate(
    func: rx.Function, args: Sequence[rx.Expr], dataflow: bool | None = None
) -> tuple[tuple[rx.BindingBlock, ...], rx.Expr]:
    """Return blocks with new variables that compute ``func(*args)``, and the returned value.

    dataflow: whether all new variables are dataflow variables; None: as in ``func``.
    """
    sizes: dict[SizeVar, PrimExpr] = {}
    for param, arg in zip(func.params, args, strict=True):
        match_info(param.struct_info, arg.struct_info, sizes)
    copy = Copy({id(p): a for p, a in zip(func.params, args, strict=True)}, sizes, dataflow)
    blocks = tuple(copy.block(block) for block in func.blocks)
    return blocks, copy(func.ret)


def match_info(formal: Any, actual: Any, sizes: dict[SizeVar, PrimExpr]) -> None:
    """Add to ``sizes`` the values of the symbolic sizes in ``formal``, a parameter's struct info, from ``actual``."""
    if isinstance(formal, rx.TupleStructInfo):
        for f, a in zip(formal.fields, actual.fields, strict=True):
            match_info(f, a, sizes)
    elif isinstance(formal, rx.TensorStructInfo):
        bind_sizes(formal.shape or (), actual.shape or (), sizes)
    elif isinstance(formal, rx.ShapeStructInfo):
        bind_sizes(formal.values or (), actual.values or (), sizes)
    elif isinstance(formal, rx.PrimStructInfo) and formal.value is not None and actual.value is not None:
        bind_sizes((formal.value,), (actual.value,), sizes)


class Copy(Rewriter):
    """Copies bindings and expressions, replacing variables and symbolic sizes."""

    def __init__(self, values: dict[int, rx.Expr], sizes: dict[SizeVar, PrimExpr], dataflow: bool | None):
        self.values = values
        self.dataflow = dataflow
        self.sizes = {id(k): v for k, v in sizes.items()}

    def block(self, block: rx.BindingBlock) -> rx.BindingBlock:
        """Copy a block with new variables."""
        return replace(block, bindings=tuple(self.binding(b) for b in block.bindings))

    def binding(self, binding: rx.Binding) -> rx.Binding:
        """Copy a binding with a new variable, which replaces the old one in everything copied afterwards."""
        value = self(binding.value)
        inside = binding.var.dataflow if self.dataflow is None else self.dataflow
        var = rx.Var(binding.var.name, self(binding.var.struct_info), inside)
        self.values[id(binding.var)] = var
        return rx.Binding(var, value, binding.matched)

    def rewrite_Var(self, node: Any) -> Any:
        return self.values[id(node)] if id(node) in self.values else self.sizes.get(id(node), node)
