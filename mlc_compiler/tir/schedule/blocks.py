"""Helpers of block transformations: loop nests, region inference, intermediate buffers, copy nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import PrimExpr, Var, cast, const, is_const, logical_and
from ...ir.simplify import Analyzer, key
from ...ir.visitor import Rewriter
from ..nodes import (
    THREAD,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    loop_nest,
    open_nest,
)
from ..regions import infer_regions
from .affine import Bounds
from .tree import ScheduleError, block_path, find_block, replace_stmts, true, with_allocs


def block_nest(func: PrimFunc, name: str) -> Stmt:
    """The largest loop nest that contains only this block."""
    path = block_path(func, name)
    nest: Stmt = path[-1]
    for stmt in reversed(path[:-1]):
        if not isinstance(stmt, For):
            break
        nest = stmt
    return nest


def check_own_loops(step: str, realize: BlockRealize, nest: Stmt) -> None:
    """Raise ScheduleError unless each loop of a block's nest is the value of one variable of the block."""
    loops, inside = open_nest(nest)
    extents = {lp.var: lp.extent for lp in loops}
    bound = [extents.pop(v, None) if isinstance(v, Var) else None for v in realize.iter_values]
    same = key(tuple(bound)) == key(tuple(it.extent for it in realize.block.iter_vars))
    plain = same and is_const(realize.predicate, 1) and all(lp.kind != THREAD for lp in loops)
    if inside is not realize or extents or not plain:
        raise ScheduleError(
            f"{step}: block {realize.block.name!r} has not one loop of its own, of one thread, "
            "for each of its variables"
        )


def accessed_buffer(step: str, block: Block, which: str | tuple[str, int]) -> tuple[Buffer, bool]:
    """A buffer that a block accesses, by name or as ``("read", i)`` or ``("write", i)``, and whether it writes it."""
    if isinstance(which, str):
        found = [(r.buffer, writes) for writes, rs in ((True, block.writes), (False, block.reads)) for r in rs]
        found = [(b, writes) for b, writes in found if b.name == which]
    else:
        regions = {"read": block.reads, "write": block.writes}.get(which[0], ())
        found = [(r.buffer, which[0] == "write") for r in regions[which[1] : which[1] + 1]]
    if not found:
        raise ScheduleError(f"{step}: block {block.name!r} accesses no buffer {which!r}")
    return found[0]


def with_accumulator_read(block: Block) -> Block:
    """An update block with its accumulators added to its reads."""
    return replace(block, reads=(*block.writes, *block.reads))


def rebuilt(block: Block, body: Stmt, init: Stmt | None = None) -> Block:
    """Return the block with another body and ``init``, and regions inferred from them."""
    updates = init is None and block.is_reduction
    reads, writes = infer_regions((init, body), block.iter_vars, updates, block.alloc_buffers)
    return replace(block, body=body, init=init, reads=reads, writes=writes)


def with_intermediate(func: PrimFunc, buffer: Buffer, name: str) -> PrimFunc:
    """Allocate an intermediate buffer of block ``name`` in the root, and add it to the regions of enclosing blocks."""
    whole = BufferRegion(buffer, tuple(Range(const(0, size.dtype), size) for size in buffer.shape))
    around = [s.block.name for s in block_path(func, name)[:-1] if isinstance(s, BlockRealize)]
    for outer in around[1:]:
        realize = find_block(func, outer)
        block = realize.block
        block = replace(block, reads=(*block.reads, whole), writes=(*block.writes, whole))
        func = replace_stmts(func, {realize: replace(realize, block=block)})
    return with_allocs(func, (buffer,))


class SwapBuffer(Rewriter):
    """Replaces a buffer everywhere."""

    def __init__(self, old: Buffer, new: Buffer):
        self.old, self.new = old, new

    def rewrite_Buffer(self, node: Buffer) -> Buffer:
        return self.new if node is self.old else node


def copy_nest(source: Buffer, target: Buffer, name: str, box: Sequence[Bounds], analyzer: Analyzer) -> Stmt:
    """Loops around a block that copies a box of ``source`` to the same place of ``target``."""
    block_vars = [Var(f"v{i}", size.dtype) for i, size in enumerate(source.shape)]
    store = BufferStore(target, source[tuple(block_vars)], tuple(block_vars))
    iters = tuple(IterVar(v, s, "S") for v, s in zip(block_vars, source.shape, strict=True))
    values: list[PrimExpr] = []
    loops: list[tuple[Var, PrimExpr]] = []
    guards: list[PrimExpr] = []
    for bounds, size in zip(box, source.shape, strict=True):
        low, high = (cast(size.dtype, b) for b in bounds)
        loop, extent = Var(f"ax{len(loops)}", low.dtype), analyzer.simplify(high - low + 1)
        loops.append((loop, extent))
        analyzer.bind(loop, extent)
        value = analyzer.simplify(low + loop)
        values.append(value)
        guards += [g for g in (value >= 0, value < size) if not analyzer.prove(g)]
    reads, writes = infer_regions(store, iters)
    block = Block(name, iters, reads, writes, store)
    return loop_nest(loops, BlockRealize(tuple(values), logical_and(true(), *guards), block))
