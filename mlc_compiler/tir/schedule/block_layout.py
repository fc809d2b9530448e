"""transform_block_layout: run a block over other variables, which an index map computes from its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import Var, cast
from ...ir.visitor import substitute
from ..index_map import Digit, IndexMap, IndexMapError
from ..nodes import SERIAL, Block, BlockRealize, IterVar, PrimFunc, loop_nest, open_nest
from .blocks import block_nest, check_own_loops, rebuilt
from .legality import check_any_order
from .tree import ScheduleError, find_block, parent_of, replace_stmts, true

STEP = "transform_block_layout"


def transform_block_layout(func: PrimFunc, name: str, index_map: IndexMap) -> PrimFunc:
    """Run a block over the indices that ``index_map`` computes of its variables, one serial loop for each.

    Only the order changes in which the block runs; ``lambda i, j: (i * 16 + j,)`` fuses a variable with one of extent
    16. Raises ScheduleError unless the map is one to one over the block's extents, every new variable comes from
    spatial variables or from reduction variables only, and the block may run in any order.
    """
    realize, nest = find_block(func, name), block_nest(func, name)
    check_own_loops(STEP, realize, nest)
    _check_serial(name, nest)
    block = realize.block
    digits = _digits(block, index_map)
    check_any_order(STEP, parent_of(func, nest), open_nest(nest)[0])
    shape = index_map.stored_shape([it.extent for it in block.iter_vars])
    iters = tuple(
        IterVar(Var(f"v{i}", extent.dtype), extent, _kind(block, i, of))
        for i, (extent, of) in enumerate(zip(shape, digits, strict=True))
    )
    old = index_map.inverse([it.extent for it in block.iter_vars])(tuple(it.var for it in iters))
    values = {it.var: cast(it.var.dtype, value) for it, value in zip(block.iter_vars, old, strict=True)}
    body, init = substitute(block.body, values), substitute(block.init, values)
    loops = [(Var(f"ax{i}", it.var.dtype), it.extent) for i, it in enumerate(iters)]
    changed = rebuilt(replace(block, iter_vars=iters), body, init)
    return replace_stmts(func, {nest: loop_nest(loops, BlockRealize(tuple(v for v, _ in loops), true(), changed))})


def _check_serial(name: str, nest: object) -> None:
    for loop in open_nest(nest)[0]:  # type: ignore[arg-type]
        if loop.kind != SERIAL:
            raise ScheduleError(
                f"{STEP}: loop {loop.var.name!r} of block {name!r} is {loop.kind} already; transform the block first"
            )


def _digits(block: Block, index_map: IndexMap) -> tuple[tuple[Digit, ...], ...]:
    """What the new variables are made of. Raises ScheduleError unless the map is one to one over the extents."""
    shape = [it.extent for it in block.iter_vars]
    try:
        digits = index_map.digits(shape)
    except IndexMapError as error:
        raise ScheduleError(f"{STEP}: block {block.name!r}: {error.message}") from error
    padded = [block.iter_vars[axis].var.name for axis in index_map.padded_axes(shape)]
    if padded:
        raise ScheduleError(
            f"{STEP}: {index_map.text} rounds the extent of {', '.join(padded)} of block {block.name!r} up"
        )
    return digits


def _kind(block: Block, position: int, digits: Sequence[Digit]) -> str:
    kinds = {block.iter_vars[d.axis].kind for d in digits}
    if len(kinds) > 1:
        names = ", ".join(block.iter_vars[d.axis].var.name for d in digits)
        raise ScheduleError(
            f"{STEP}: index {position} mixes spatial and reduction variables of block {block.name!r}: {names}"
        )
    return kinds.pop() if kinds else "S"
