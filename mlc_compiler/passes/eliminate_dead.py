"""Dead code elimination in graph functions, and removal of unreachable functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..ir.module import IRModule
from ..relax import nodes as rx
from ..relax.dataflow import called_functions, is_pure, used_vars
from .base import Pass


@dataclass(frozen=True)
class EliminateDead(Pass):
    """Remove unused pure bindings, and functions that are unreachable from the exported ones.

    Functions with a ``global_symbol`` are exported; when no graph function has one, all graph functions are, and
    when there are no graph functions, all functions are.
    """

    name = "eliminate-dead"

    def run(self, mod: IRModule) -> IRModule:
        changes = {name: _live_part(f, mod) for name, f in mod.of_type(rx.Function).items()}
        mod = mod.updated(changes)
        reached = _reached(mod)
        return mod.with_functions({name: f for name, f in mod.functions.items() if name in reached})


def _live_part(func: rx.Function, mod: IRModule) -> rx.Function:
    live = {id(v) for v in used_vars(func.ret)}
    blocks: list[rx.BindingBlock] = []
    for block in reversed(func.blocks):
        kept = []
        for binding in reversed(block.bindings):
            if id(binding.var) in live or binding.matched or not is_pure(binding.value, mod.functions):
                live |= {id(v) for v in used_vars(binding.value)}
                kept.append(binding)
        if kept:
            blocks.append(replace(block, bindings=tuple(reversed(kept))))
    return replace(func, blocks=tuple(reversed(blocks)))


def _roots(mod: IRModule) -> list[str]:
    graph = mod.of_type(rx.Function)
    if not graph:
        return list(mod)
    exported = [name for name in graph if "global_symbol" in mod[name].attrs]
    if not exported:
        return [name for name in graph if not mod[name].attrs.get("Primitive")]
    return [name for name in mod if "global_symbol" in mod[name].attrs]


def _callees(func: object) -> Iterator[str]:
    if isinstance(func, rx.Function):
        for binding in func.bindings:
            yield from called_functions(binding.value)
        yield from called_functions(func.ret)


def _reached(mod: IRModule) -> set[str]:
    reached: set[str] = set()
    stack = _roots(mod)
    while stack:
        name = stack.pop()
        if name not in reached and name in mod:
            reached.add(name)
            stack.extend(_callees(mod[name]))
    return reached
