"""cache_inplace: run a block on a copy of a buffer that it reads and writes."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import const, logical_and
from ...ir.simplify import key
from ..nodes import BlockRealize, Buffer, PrimFunc, Stmt, loop_nest, open_nest, seq
from .access import Access, accesses_in
from .affine import Bounds, is_one
from .blocks import SwapBuffer, copy_nest, with_intermediate
from .caching import check_scope, check_written, chosen, inside_buffer
from .compute_at import hull
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    replace_stmts,
    unique_block_name,
    unique_buffer_name,
)

STEP = "cache_inplace"


def cache_inplace(func: PrimFunc, name: str, index: int, scope: str) -> tuple[PrimFunc, tuple[str, str]]:
    """Redirect a block's reads and writes of a buffer to a copy in ``scope``, made before each run of the block.

    index: of the buffer among those that the block reads. The copy is written back after each run. Returns the names of
    the blocks that copy. Raises ScheduleError when the block does not also write the buffer.
    """
    check_scope(STEP, scope)
    realize = find_block(func, name)
    target = chosen(STEP, name, "reads", [r.buffer for r in realize.block.reads], index)
    if all(r.buffer is not target for r in realize.block.writes):
        raise ScheduleError(f"{STEP}: block {name!r} does not write {target.name!r}, which it reads")
    box = _box(func, realize, target)
    cache = replace(target, name=unique_buffer_name(func, f"{target.name}_{scope}"), scope=scope)
    read_name = unique_block_name(func, cache.name)
    before = _copy(func, realize, (target, cache), read_name, box)
    changed = SwapBuffer(target, cache)(realize.block)
    func = replace_stmts(func, {realize: seq(before, replace(realize, block=changed))})
    write_name, realize = unique_block_name(func, cache.name), find_block(func, name)
    after = _copy(func, realize, (cache, target), write_name, box)
    func = replace_stmts(func, {realize: seq(realize, after)})
    return with_intermediate(func, cache, read_name), (read_name, write_name)


def _box(func: PrimFunc, realize: BlockRealize, target: Buffer) -> list[Bounds]:
    """What one run of a block touches of a buffer, widened to the whole of an axis that is indexed by data.

    Raises ScheduleError when elements would be copied that are not known to hold a value.
    """
    analyzer = analyzer_at(block_path(func, realize.block.name)[:-1])
    found = [a for a in accesses_in(realize) if a.buffer is target]
    if len({_place(a) for a in found}) != 1:
        check_written(STEP, func, realize, target)
    full = [(const(0, s.dtype), analyzer.simplify(s - 1)) for s in target.shape]
    bounds = [f if b is None else b for f, b in zip(full, hull(found, analyzer), strict=True)]
    return inside_buffer(bounds, target, analyzer)


def _place(access: Access) -> object:
    """Equal for accesses of the same single element; no two accesses of several elements are equal."""
    one = not access.loops and all(is_one(r.extent) for r in access.box)
    return key(tuple(r.min for r in access.box)) if one else id(access)


def _copy(func: PrimFunc, realize: BlockRealize, pair: tuple[Buffer, Buffer], name: str, box: list[Bounds]) -> Stmt:
    """Loops that copy a box where the block runs."""
    analyzer = analyzer_at(block_path(func, realize.block.name)[:-1])
    loops, inner = open_nest(copy_nest(*pair, name, box, analyzer))
    assert isinstance(inner, BlockRealize)
    copy = replace(inner, predicate=logical_and(realize.predicate, inner.predicate))
    return loop_nest([(lp.var, lp.extent) for lp in loops], copy)
