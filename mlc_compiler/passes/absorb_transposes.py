"""Fold ``permute_dims(w)`` into ``linear``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.module import IRModule
from ..relax import nodes as rx
from ..relax.dataflow import Mutations, is_op
from ..relax.ops.linear import linear
from .base import Pass


@dataclass(frozen=True)
class AbsorbTransposes(Pass):
    """Fold ``permute_dims(w)`` of a matrix into its matmul: ``matmul(x, permute_dims(w))`` -> ``linear(x, w)``.

    ``EliminateDead`` drops the transposition when nothing else reads it. A matmul stays when ``w`` is written in place
    between the two.
    """

    name = "absorb-transposes"

    def run(self, mod: IRModule) -> IRModule:
        changes = {}
        for name, func in mod.of_type(rx.Function).items():
            blocks = tuple(_rewrite(block, mod) for block in func.blocks)
            changes[name] = replace(func, blocks=blocks)
        return mod.updated(changes)


def _rewrite(block: rx.BindingBlock, mod: IRModule) -> rx.BindingBlock:
    mutations = Mutations(block.bindings, mod.functions)
    transposed: dict[int, int] = {}
    bindings: list[rx.Binding] = []
    for position, binding in enumerate(block.bindings):
        if _is_transposition(binding.value) and not mutations.is_written(binding.var):
            transposed[id(binding.var)] = position
        elif _is_plain_matmul(binding.value):
            at = transposed.get(id(binding.value.args[1]))  # type: ignore[attr-defined]
            if at is not None and mutations.may_delay(block.bindings[at].value, at, position):
                binding = replace(binding, value=_as_linear(binding.value, block.bindings[at].value))
        bindings.append(binding)
    return replace(block, bindings=tuple(bindings))


def _is_transposition(value: rx.Expr) -> bool:
    if not is_op(value, "permute_dims"):
        return False
    assert isinstance(value, rx.Call)
    axes = value.attrs.get("axes")
    return _rank(value.args[0]) == 2 and (axes is None or _from_front(axes) == [1, 0])


def _from_front(axes: Sequence[int]) -> list[int]:
    return [axis % len(axes) for axis in axes]


def _is_plain_matmul(value: rx.Expr) -> bool:
    """Whether this is a ``matmul`` whose result has the dtype of its left operand, like ``linear``."""
    if not is_op(value, "matmul"):
        return False
    assert isinstance(value, rx.Call)
    return _dtype(value) == _dtype(value.args[0])


def _as_linear(matmul: rx.Expr, transposition: rx.Expr) -> rx.Expr:
    assert isinstance(matmul, rx.Call) and isinstance(transposition, rx.Call)
    return linear(matmul.args[0], transposition.args[0])


def _rank(value: rx.Expr) -> int | None:
    info = value.struct_info
    return len(info.shape) if isinstance(info, rx.TensorStructInfo) and info.shape is not None else None


def _dtype(value: rx.Expr) -> str | None:
    return value.struct_info.dtype if isinstance(value.struct_info, rx.TensorStructInfo) else None
