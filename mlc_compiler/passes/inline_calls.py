"""Calls of graph functions are replaced by what these compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlc_errors import MLCError

from ..ir.expr import PrimExpr
from ..ir.expr import Var as SizeVar
from ..ir.module import GlobalVar, IRModule
from ..ir.visitor import Rewriter
from ..relax import nodes as rx
from .base import Pass


class InlineError(MLCError):
    """A call of a graph function that has no end."""


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Put the bindings of called graph functions in the place of the calls.

    Fused groups (``Primitive``) are left alone. Symbolic sizes of the callee become what the arguments have there.
    """

    name = "inline-calls"

    def run(self, mod: IRModule) -> IRModule:
        inliner = _Inliner(mod)
        return mod.updated({name: inliner.function(name) for name in mod.of_type(rx.Function)})


@dataclass
class _Inliner:
    mod: IRModule
    done: dict[str, rx.Function] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)

    def function(self, name: str) -> rx.Function:
        """A function of the module without calls of graph functions."""
        if name in self.active:
            raise InlineError(f"{name} calls itself: {' -> '.join([*self.active, name])}; recursion is not supported")
        if name not in self.done:
            self.active.append(name)
            func = self.mod[name]
            self.done[name] = replace(func, blocks=tuple(self._block(b) for b in func.blocks))
            self.active.pop()
        return self.done[name]

    def _block(self, block: rx.BindingBlock) -> rx.BindingBlock:
        result: list[rx.Binding] = []
        for binding in block.bindings:
            callee = self._callee(binding.value)
            if callee is None:
                result.append(binding)
                continue
            blocks, value = instantiate(callee, binding.value.args, block.dataflow)  # type: ignore[attr-defined]
            result += (inner for body in blocks for inner in body.bindings)
            result.append(replace(binding, value=value))
        return replace(block, bindings=tuple(result))

    def _callee(self, value: rx.Expr) -> rx.Function | None:
        if not (isinstance(value, rx.Call) and isinstance(value.target, GlobalVar)):
            return None
        callee = self.mod[value.target]
        if not isinstance(callee, rx.Function) or callee.attrs.get("Primitive"):
            return None
        return self.function(value.target.name)


def instantiate(
    func: rx.Function, args: Sequence[rx.Expr], dataflow: bool | None = None
) -> tuple[tuple[rx.BindingBlock, ...], rx.Expr]:
    """Blocks with new variables that compute ``func(*args)``, and the value that it returns.

    dataflow: whether all new variables live inside of a dataflow block; None: as in ``func``.
    """
    sizes: dict[SizeVar, PrimExpr] = {}
    for param, arg in zip(func.params, args, strict=True):
        match_info(param.struct_info, arg.struct_info, sizes)
    copy = Copy({id(p): a for p, a in zip(func.params, args, strict=True)}, sizes, dataflow)
    blocks = tuple(copy.block(block) for block in func.blocks)
    return blocks, copy(func.ret)


def match_info(formal: Any, actual: Any, sizes: dict[SizeVar, PrimExpr]) -> None:
    """What the symbolic sizes of a parameter are for the caller."""
    if isinstance(formal, rx.TupleStructInfo):
        for f, a in zip(formal.fields, actual.fields, strict=True):
            match_info(f, a, sizes)
    elif isinstance(formal, rx.TensorStructInfo):
        _match_sizes(formal.shape, actual.shape, sizes)
    elif isinstance(formal, rx.ShapeStructInfo):
        _match_sizes(formal.values, actual.values, sizes)
    elif isinstance(formal, rx.PrimStructInfo) and formal.value is not None:
        _match_sizes((formal.value,), (actual.value,), sizes)


def _match_sizes(formal: Any, actual: Any, sizes: dict[SizeVar, PrimExpr]) -> None:
    for f, a in zip(formal or (), actual or (), strict=False):
        if isinstance(f, SizeVar) and a is not None:
            sizes.setdefault(f, a)


class Copy(Rewriter):
    """Graph expressions with other variables and sizes."""

    def __init__(self, values: dict[int, rx.Expr], sizes: dict[SizeVar, PrimExpr], dataflow: bool | None):
        self.values = values
        self.dataflow = dataflow
        self.sizes = {id(k): v for k, v in sizes.items()}

    def block(self, block: rx.BindingBlock) -> rx.BindingBlock:
        """A block of bindings of new variables."""
        return replace(block, bindings=tuple(self.binding(b) for b in block.bindings))

    def binding(self, binding: rx.Binding) -> rx.Binding:
        """A binding of a new variable, which stands for the old one from now on."""
        value = self(binding.value)
        inside = binding.var.dataflow if self.dataflow is None else self.dataflow
        var = rx.Var(binding.var.name, self(binding.var.struct_info), inside)
        self.values[id(binding.var)] = var
        return rx.Binding(var, value, binding.matched)

    def rewrite_Var(self, node: Any) -> Any:
        return self.values[id(node)] if id(node) in self.values else self.sizes.get(id(node), node)
