"""Common subexpression elimination in graph functions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from ..ir.module import IRModule
from ..ir.structural import structural_key
from ..relax import nodes as rx
from ..relax.dataflow import Mutations, is_op, is_pure, replace_vars, used_vars
from .base import Pass


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Replace a binding whose value is already bound in the same scope by the earlier variable.

    Only pure calls and items of tuples are compared, never functions registered by the user. Two reads of a tensor
    that is written in place between them differ, and a value that is itself written in place is not shared.
    """

    name = "common-subexpressions"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: _Function(f, mod).run() for name, f in mod.of_type(rx.Function).items()})


@dataclass
class _Scope:
    """The values bound so far in the function's other blocks and in the current dataflow block."""

    function: dict[Hashable, rx.Var] = field(default_factory=dict)
    block: dict[Hashable, rx.Var] = field(default_factory=dict)

    def find(self, key: Hashable, seen_outside: bool) -> rx.Var | None:
        """An earlier variable with this value, or None; ``seen_outside``: it must be visible outside its block."""
        found = self.function.get(key)
        return found if found is not None or seen_outside else self.block.get(key)

    def add(self, key: Hashable, var: rx.Var) -> None:
        (self.block if var.dataflow else self.function).setdefault(key, var)


class _Function:
    def __init__(self, func: rx.Function, mod: IRModule):
        self.func = func
        self.functions: Mapping[str, object] = mod.functions
        self.mutations = Mutations(func.bindings, mod.functions)
        self.renamed: dict[int, rx.Expr] = {}
        self.scope = _Scope()
        self.position = 0

    def run(self) -> rx.Function:
        blocks = tuple(self._block(b) for b in self.func.blocks)
        return replace(self.func, blocks=blocks, ret=replace_vars(self.func.ret, self.renamed))

    def _block(self, block: rx.BindingBlock) -> rx.BindingBlock:
        self.scope.block = {}
        kept = []
        for binding in block.bindings:
            value = replace_vars(binding.value, self.renamed)
            earlier = self._earlier(binding, value)
            if earlier is None:
                kept.append(binding if value is binding.value else replace(binding, value=value))
            else:
                self.renamed[id(binding.var)] = earlier
            self.position += 1
        return replace(block, bindings=tuple(kept))

    def _earlier(self, binding: rx.Binding, value: rx.Expr) -> rx.Var | None:
        if not self._is_comparable(binding, value):
            return None
        versions = tuple(self.mutations.version(v, self.position) for v in used_vars(value))
        key = (structural_key(value, by_identity=True), versions)
        earlier = self.scope.find(key, seen_outside=not binding.var.dataflow)
        if earlier is None:
            self.scope.add(key, binding.var)
        return earlier

    def _is_comparable(self, binding: rx.Binding, value: rx.Expr) -> bool:
        if binding.matched or not isinstance(value, rx.Call | rx.TupleGetItem):
            return False
        if is_op(value, "call_dps_packed") or not is_pure(value, self.functions):
            return False
        return isinstance(value, rx.TupleGetItem) or not self.mutations.is_written(binding.var)
