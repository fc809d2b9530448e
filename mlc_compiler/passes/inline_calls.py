"""Inline calls of graph functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlc_errors import MLCError

from ..ir.module import GlobalVar, IRModule
from ..relax import nodes as rx
from ..relax.instantiate import instantiate
from .base import Pass


class InlineError(MLCError):
    """A recursive call of a graph function."""


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Replace calls of graph functions by the callee's bindings.

    Fused groups (``Primitive``) are left alone. Symbolic sizes of the callee are replaced by the arguments' sizes.
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
        """A function of the module with all its calls of graph functions inlined."""
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
