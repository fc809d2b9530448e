"""Count the floating-point operations of tensor functions, before schedules split their loops."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, IntImm, PrimExpr, const, product
from ..ir.module import IRModule
from ..ir.simplify import simplify
from ..ir.visitor import free_vars, walk
from ..script.printer import script
from ..tir.calling import scalar_parameters
from ..tir.nodes import Block, PrimFunc
from .base import Pass

OPERATIONS = "operations"
_ARITHMETIC = frozenset("+-*/")


@dataclass(frozen=True)
class CountOperations(Pass):
    """Set the attribute ``operations``: the number of floating-point operations in a function's reductions.

    Needs: unscheduled blocks. A multiply-add counts as two operations, so that a matmul of
    ``[M, K]`` and ``[N, K]`` has ``2 M N K``. The attribute is a number, or an expression in the names of the
    function's symbolic sizes. It is not set for functions without sums of floats, functions scheduled by a back end,
    such as attention, and functions whose reduction extents depend on data.
    """

    name = "count-operations"

    def run(self, mod: IRModule) -> IRModule:
        counted = {name: _operations(f) for name, f in mod.of_type(PrimFunc).items()}
        return mod.updated(
            {name: mod[name].with_attr(OPERATIONS, count) for name, count in counted.items() if count is not None}
        )


def _operations(func: PrimFunc) -> int | str | None:
    """The number of operations as an int or text; None where there are none or the number is unknown."""
    if func.attrs.get("tir.is_scheduled"):
        return None
    blocks = [node for node in walk(func.body) if isinstance(node, Block) and node.is_reduction]
    count: PrimExpr = const(0, "int64")
    for block in blocks:
        count = count + product(it.extent for it in block.iter_vars) * _of_an_iteration(block)
    count = simplify(count)
    known = {id(v) for v in scalar_parameters(func)}
    if any(id(v) not in known for v in free_vars(count)):
        return None
    return script(count) if not isinstance(count, IntImm) else count.value or None


def _of_an_iteration(block: Block) -> int:
    operations = (n for n in walk(block.body) if isinstance(n, BinaryOp) and n.op in _ARITHMETIC)
    return sum(dt.is_float(node.dtype) for node in operations)
