"""Operands of a reduction that are copied in each call into panels: tiles of columns, adjacent for each step."""

from __future__ import annotations

from ....ir.expr import Var
from ....ir.simplify import Analyzer
from ....ir.visitor import uses, walk
from ....schedules.rule import constant_extent
from ....tir.calling import step_along
from ....tir.index_map import IndexMap
from ....tir.nodes import Block, BufferLoad
from ....tir.schedule import Schedule


def operands_by_column(block: Block, column: Var) -> list[BufferLoad]:
    """The loads of a reduction that differ in each column and step, with the column as one of their indices."""
    written = {id(w.buffer) for w in block.writes}
    reductions = [it.var for it in block.iter_vars if it.kind == "R"]
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and id(n.buffer) not in written]
    return [
        load for load in loads
        if sum(uses(index, column) for index in load.indices) == 1
        and any(index is column for index in load.indices)
        and any(uses(index, r) for index in load.indices for r in reductions)
        and all(constant_extent(size) for size in load.buffer.shape)
        and sum(other.buffer is load.buffer for other in loads) == 1
    ]  # fmt: skip


def is_gathered(load: BufferLoad, column: Var) -> bool:
    """Whether adjacent columns are apart in memory."""
    return step_along(load, column, Analyzer()) != 1


def pack(s: Schedule, name: str, load: BufferLoad, column: Var, width: int) -> str:
    """Copy an operand of a block into panels of ``width`` columns; returns the block that copies, which is scheduled.

    The copy is stored as ``[rows…, columns / width, steps…, width]`` and made in parallel over rows and panels.
    """
    block = s.block(name)
    written = {id(w.buffer) for w in block.writes}
    reads = [r.buffer for r in block.reads if id(r.buffer) not in written]
    reductions = [it.var for it in block.iter_vars if it.kind == "R"]
    at = next(i for i, index in enumerate(load.indices) if index is column)
    depth = [i for i, index in enumerate(load.indices) if any(uses(index, r) for r in reductions)]
    rows = [i for i in range(len(load.indices)) if i != at and i not in depth]
    copy = s.cache_read(name, next(i for i, b in enumerate(reads) if b is load.buffer), "global")
    inputs = [Var(f"i{i}") for i in range(len(load.indices))]
    outputs = [*(inputs[i] for i in rows), inputs[at] // width, *(inputs[i] for i in depth), inputs[at] % width]
    s.transform_layout(copy, ("write", 0), IndexMap(inputs, outputs))
    loops = s.get_loops(copy)
    panel, lane = s.split(loops[at], [None, width])
    s.reorder(*(loops[i] for i in rows), panel, *(loops[i] for i in depth), lane)
    s.parallel(s.fuse(*(loops[i] for i in rows), panel))
    s.vectorize(lane)
    return copy
