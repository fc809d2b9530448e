"""cache_read, cache_write, set_scope and storage_align."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import IntImm
from ...ir.simplify import Analyzer
from ..nodes import SCOPES, BlockRealize, Buffer, For, PrimFunc, Stmt, seq
from .access import accesses_in
from .affine import Bounds, clip
from .blocks import SwapBuffer, block_nest, copy_nest, with_intermediate
from .compute_at import hull
from .dependence import bind_loops, common_loops, exact_box
from .legality import all_accesses, check_intermediate, split_by_block
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    is_output,
    replace_in,
    replace_stmts,
    root_of,
    unique_block_name,
    unique_buffer_name,
)

STORAGE_ALIGN = "buffer_dim_align"
"""The annotation of a block for its written buffers' strides: lists of buffer index, axis, factor and offset."""


def check_scope(step: str, scope: str) -> None:
    if scope not in SCOPES:
        raise ScheduleError(f"{step}: got scope {scope!r}; expected one of {', '.join(SCOPES)}")


def chosen(step: str, name: str, what: str, buffers: Sequence[Buffer], index: int) -> Buffer:
    distinct = list({id(b): b for b in buffers}.values())
    if not 0 <= index < len(distinct):
        names = ", ".join(b.name for b in distinct)
        raise ScheduleError(f"{step}: block {name!r} {what} {len(distinct)} buffers ({names}); asked for {index}")
    return distinct[index]


def _analyzer(func: PrimFunc, name: str) -> Analyzer:
    return analyzer_at(block_path(func, name)[:-1])


def cache_write(func: PrimFunc, name: str, index: int, scope: str) -> tuple[PrimFunc, str]:
    """Redirect a block's writes to a new buffer in ``scope``; a new block copies that buffer to the original one."""
    step = "cache_write"
    check_scope(step, scope)
    realize, found = find_block(func, name), all_accesses(func)
    target = chosen(step, name, "writes", [r.buffer for r in realize.block.writes], index)
    own, _ = split_by_block(found, realize)
    if realize.block.init is None and any(a.buffer is target and not a.is_write for a in own):
        raise ScheduleError(f"{step}: block {name!r} reads {target.name!r}, which it writes")
    nest, analyzer = block_nest(func, name), _analyzer(func, name)
    writes = [a for a in accesses_in(nest) if a.buffer is target and a.is_write and not a.is_init]
    box = exact_box(writes[0], writes[0].loops, analyzer) if len(writes) == 1 else None
    if box is None:
        raise ScheduleError(f"{step}: what block {name!r} writes to {target.name!r} is not known to be a box")
    cache = replace(target, name=unique_buffer_name(func, f"{target.name}_{scope}"), scope=scope)
    copy_name = unique_block_name(func, cache.name)
    copy = copy_nest(cache, target, copy_name, inside_buffer(box, target, analyzer), analyzer)
    func = replace_stmts(func, {nest: seq(SwapBuffer(target, cache)(nest), copy)})
    return with_intermediate(func, cache, copy_name), copy_name


def cache_read(func: PrimFunc, name: str, index: int, scope: str) -> tuple[PrimFunc, str]:
    """Redirect a block's reads of its ``index``-th input to a copy in ``scope``, made by a new block before its loops.

    Inputs are counted in the order of the block's reads, without accumulators. A copy in shared memory is made before
    all loops around the block that do not write the input, so that it holds the elements that all threads read.
    """
    step = "cache_read"
    check_scope(step, scope)
    realize = find_block(func, name)
    written = {id(r.buffer) for r in realize.block.writes}
    inputs = [r.buffer for r in realize.block.reads if id(r.buffer) not in written]
    source = chosen(step, name, "reads", inputs, index)
    own, analyzer = block_nest(func, name), _analyzer(func, name)
    nest = _outermost_nest(func, name, source) if scope == "shared" else own
    inside = [a for a in split_by_block(accesses_in(nest), realize)[0] if a.buffer is source]
    if not inside:
        raise ScheduleError(f"{step}: block {name!r} only prefetches {source.name!r}")
    box = exact_box(inside[0], inside[0].loops, analyzer) if len(inside) == 1 else None
    if box is None:
        check_written(step, func, realize, source)
        full = [(IntImm(0), analyzer.simplify(s - 1)) for s in source.shape]
        box = [f if b is None else b for f, b in zip(full, hull(inside, analyzer), strict=True)]
    cache = replace(source, name=unique_buffer_name(func, f"{source.name}_{scope}"), scope=scope)
    copy_name = unique_block_name(func, cache.name)
    copy = copy_nest(source, cache, copy_name, inside_buffer(box, source, analyzer), analyzer)
    redirected = replace_in(nest, {own: SwapBuffer(source, cache)(own)})
    func = replace_stmts(func, {nest: seq(copy, redirected)})
    return with_intermediate(func, cache, copy_name), copy_name


def _outermost_nest(func: PrimFunc, name: str, source: Buffer) -> Stmt:
    """The outermost loop around a block, within its enclosing block, in which ``source`` is not written."""
    nest: Stmt = find_block(func, name)
    for stmt in reversed(block_path(func, name)[:-1]):
        if isinstance(stmt, BlockRealize) or any(a.buffer is source and a.is_write for a in accesses_in(stmt)):
            break
        nest = stmt if isinstance(stmt, For) else nest
    return nest


def inside_buffer(box: Sequence[Bounds], buffer: Buffer, analyzer: Analyzer) -> list[Bounds]:
    """Intersect a box with the buffer's shape, as far as can be proved."""
    return [clip(bounds, size - 1, analyzer) for bounds, size in zip(box, buffer.shape, strict=True)]


def check_written(step: str, func: PrimFunc, realize: BlockRealize, source: Buffer) -> None:
    """Raise ScheduleError unless the whole buffer is written before the block, so that all of it can be copied."""
    if is_output(func, source):
        return
    own, others = split_by_block(all_accesses(func), realize)
    for write in (o for o in others if o.is_write and o.buffer is source and o.place < own[0].place):
        analyzer = Analyzer()
        bind_loops(analyzer, write)
        box = exact_box(write, write.loops, analyzer)
        if not common_loops(write, own[0]) and box is not None and _is_whole(box, source, analyzer):
            return
    raise ScheduleError(f"{step}: not all of what would be copied of {source.name!r} is known to be written")


def _is_whole(box: Sequence[Bounds], buffer: Buffer, analyzer: Analyzer) -> bool:
    pairs = zip(box, buffer.shape, strict=True)
    return all(analyzer.prove(low <= 0) and analyzer.prove(high >= size - 1) for (low, high), size in pairs)


def set_scope(func: PrimFunc, name: str, index: int, scope: str) -> PrimFunc:
    """Set the scope of an intermediate buffer that a block writes."""
    check_scope("set_scope", scope)
    buffer = chosen("set_scope", name, "writes", [r.buffer for r in find_block(func, name).block.writes], index)
    check_intermediate("set_scope", func, buffer)
    if all(b is not buffer for b in root_of(func).block.alloc_buffers):
        raise ScheduleError(f"set_scope: {buffer.name!r} is not allocated by the function's root block")
    return replace(func, body=SwapBuffer(buffer, replace(buffer, scope=scope))(func.body))


def storage_align(func: PrimFunc, name: str, index: int, axis: int, factor: int, offset: int) -> PrimFunc:
    """Pad an intermediate buffer that a block writes so that the stride of an axis is ``offset`` modulo ``factor``.

    The step annotates the block; the pass that lowers blocks applies the padding.
    """
    step, realize = "storage_align", find_block(func, name)
    buffer = chosen(step, name, "writes", [r.buffer for r in realize.block.writes], index)
    check_intermediate(step, func, buffer)
    axes = len(buffer.shape)
    if not -axes <= axis < axes or axis % axes == axes - 1:
        raise ScheduleError(f"{step}: got axis {axis} of {buffer.name!r}, which has {axes}; the last has stride 1")
    if not 0 <= offset < factor:
        raise ScheduleError(f"{step}: got factor {factor} and offset {offset}; expected 0 <= offset < factor")
    known = realize.block.annotations.get(STORAGE_ALIGN, [])
    others = [list(item) for item in known if tuple(item[:2]) != (index, axis % axes)]
    annotations = {**realize.block.annotations, STORAGE_ALIGN: [*others, [index, axis % axes, factor, offset]]}
    return replace_stmts(func, {realize: replace(realize, block=replace(realize.block, annotations=annotations))})
