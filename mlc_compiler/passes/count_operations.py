"""Count the floating-point operations of tensor functions and the matrices that they select, before loops are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir import dtype as dt
from ..ir.expr import BinaryOp, IntImm, PrimExpr, const, product
from ..ir.module import IRModule
from ..ir.simplify import simplify
from ..ir.structural import structural_equal
from ..ir.visitor import free_vars, nodes_of
from ..script.printer import script
from ..tir.calling import scalar_parameters
from ..tir.nodes import Block, Buffer, BufferLoad, BufferStore, PrimFunc
from .base import Pass
from .lower_blocks import holds_blocks

OPERATIONS, GATHERED = "operations", "gathered"
_ARITHMETIC = frozenset("+-*/")


@dataclass(frozen=True)
class CountOperations(Pass):
    """Set the attribute ``operations``: the number of floating-point operations in a function's reductions.

    Needs: unscheduled blocks. A multiply-add counts as two operations, so that a matmul of
    ``[M, K]`` and ``[N, K]`` has ``2 M N K``. The attribute is a number, or an expression in the names of the
    function's symbolic sizes. It is not set for functions without sums of floats, functions scheduled by a back end,
    such as attention, and functions whose reduction extents depend on data.

    The attribute ``gathered`` is set for functions whose sums read slices ``w[i]`` that are selected by data, such as
    the matrices of experts: position of the parameter w -> how many slices are selected, and how many w has.
    """

    name = "count-operations"

    def run(self, mod: IRModule) -> IRModule:
        return mod.updated({name: _counted(func) for name, func in mod.of_type(PrimFunc).items()})


def _counted(func: PrimFunc) -> PrimFunc:
    if func.attrs.get("tir.is_scheduled"):
        return func
    count, gathered = _operations(func), _gathered(func)
    func = func if count is None else func.with_attr(OPERATIONS, count)
    return func.with_attr(GATHERED, gathered) if gathered else func


def _operations(func: PrimFunc) -> int | str | None:
    """The number of operations as an int or text; None where there are none or the number is unknown."""
    blocks = [block for block in nodes_of(func.body, Block) if block.is_reduction]
    count: PrimExpr = const(0, "int64")
    for block in blocks:
        count = count + product(it.extent for it in block.iter_vars) * _of_an_iteration(block)
    return _text(count, func) or None


def _of_an_iteration(block: Block) -> int:
    operations = [n for n in nodes_of(block.body, BinaryOp) if n.op in _ARITHMETIC]
    return sum(dt.is_float(node.dtype) for node in operations)


def _text(count: PrimExpr, func: PrimFunc) -> int | str | None:
    """A number, or an expression in the function's symbolic sizes; None if it has other variables."""
    count = simplify(count)
    known = {id(v) for v in scalar_parameters(func)}
    if any(id(v) not in known for v in free_vars(count)):
        return None
    return count.value if isinstance(count, IntImm) else script(count)


def _gathered(func: PrimFunc) -> dict[str, tuple[int | str, int]]:
    """See ``CountOperations``. Slices of computed buffers count as those of the parameters that they are made of."""
    counts: dict[int, PrimExpr | None] = {}  # by buffer; None: all slices
    for block in reversed([block for block in nodes_of(func.body, Block) if not holds_blocks(block.body)]):
        stores = nodes_of(block.body, BufferStore)
        for load in [load for load in nodes_of(block.body, BufferLoad) if load.indices]:
            count = _slices(load, block) if block.is_reduction else _of_result(load, stores, counts)
            known = counts.setdefault(id(load.buffer), count)
            if not _same(known, count):
                counts[id(load.buffer)] = None
    found = {}
    for position, param in enumerate(func.params):
        count = counts.get(id(param))
        text = None if count is None else _text(count, func)
        if text is not None and isinstance(param, Buffer) and isinstance(param.shape[0], IntImm):
            found[str(position)] = (text, param.shape[0].value)
    return found


def _slices(load: BufferLoad, block: Block) -> PrimExpr | None:
    """The number of indices of the first axis, if they depend on data."""
    first = load.indices[0]
    if not nodes_of(first, BufferLoad):
        return None
    used = {id(v) for v in free_vars(first)}
    return product(it.extent for it in block.iter_vars if id(it.var) in used)


def _of_result(
    load: BufferLoad, stores: Sequence[BufferStore], counts: Mapping[int, PrimExpr | None]
) -> PrimExpr | None:
    """The number of slices of the block's result, if slice i of the result is made of slice i of the loaded buffer."""
    aligned = len(stores) == 1 and len(stores[0].indices) > 0 and load.indices[0] is stores[0].indices[0]
    return counts.get(id(stores[0].buffer)) if aligned else None


def _same(a: PrimExpr | None, b: PrimExpr | None) -> bool:
    return a is b or (a is not None and b is not None and structural_equal(simplify(a), simplify(b)))
