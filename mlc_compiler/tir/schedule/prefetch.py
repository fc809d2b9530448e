"""prefetch: issue cache prefetches for the elements that a block reads in a later iteration of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...ir import dtype as dt
from ...ir.expr import Call, IntImm, PrimExpr, Var, cast, const, is_const, minimum
from ...ir.simplify import Analyzer, key
from ...ir.visitor import nodes_of, substitute
from ..nodes import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    Evaluate,
    For,
    PrimFunc,
    Range,
    Stmt,
    loop_nest,
    seq,
)
from .access import accesses_in
from .affine import Bounds
from .compute_at import hull
from .tree import ScheduleError, analyzer_at, find_block, loop_path, replace_stmts, true, unique_block_name

LINE = 64  # bytes: the smallest cache line of the targets
PREFETCHES = {1: "intrinsic.cpu.prefetch", 2: "intrinsic.cpu.prefetch.l2"}  # by level of cache


def prefetch(
    func: PrimFunc, name: str, var: Var, index: int, distance: int, within: Var | None = None, level: int = 1
) -> tuple[PrimFunc, str]:
    """Prefetch what block ``name`` will read of its ``index``-th buffer ``distance`` iterations of ``var`` later.

    within: a loop inside that of ``var``, each of whose iterations prefetches what the same iteration reads later;
    None: an iteration of ``var`` prefetches everything. level: of cache, 1 or 2. Past the last iteration, the prefetch
    continues in the next iteration of the enclosing loop, if any. Returns the block of the prefetches, the first
    statement of an iteration. Raises ScheduleError when the block or the loop ``within`` is not inside the loop, when
    the buffer is allocated inside the loop, or when the region that the block reads is not a box of constant extents.
    """
    path = loop_path(func, var)
    inner_path = path if within is None else loop_path(func, within)
    if within is not None and path[-1] not in inner_path:
        raise ScheduleError(f"prefetch: loop {within.name!r} is not inside loop {var.name!r}")
    loop = inner_path[-1]
    assert isinstance(loop, For)
    regions = find_block(func, name).block.reads
    if distance < 1:
        raise ScheduleError(f"prefetch: got distance {distance}; expected at least 1")
    if level not in PREFETCHES:
        raise ScheduleError(f"prefetch: got level {level}; expected 1 or 2")
    if not 0 <= index < len(regions):
        raise ScheduleError(f"prefetch: block {name!r} reads {len(regions)} buffers; got index {index}")
    source = regions[index].buffer
    reads = [a for a in accesses_in(loop.body) if a.buffer is source and a.block_name == name and not a.is_write]
    if not reads:
        raise ScheduleError(f"prefetch: block {name!r} is not inside loop {loop.var.name!r}")
    if any(source is b for block in nodes_of(loop.body, Block) for b in block.alloc_buffers):
        raise ScheduleError(f"prefetch: {source.name!r} is allocated inside loop {loop.var.name!r}")
    analyzer = analyzer_at(inner_path)
    box = _constant_box(source, hull(reads, analyzer), analyzer)
    later = _later(path, distance)
    box = [Range(analyzer.simplify(substitute(r.min, later)), r.extent) for r in box]
    block_name = unique_block_name(func, f"{source.name}_prefetch")
    block = Block(block_name, (), (BufferRegion(source, tuple(box)),), (), _touches(source, box, level))
    body = seq(BlockRealize((), true(), block), loop.body)
    return replace_stmts(func, {loop.body: body}), block_name


def _later(path: Sequence[Stmt], distance: int) -> dict[Var, PrimExpr]:
    """The variables of the path's last loop and of the loop around it, ``distance`` iterations later.

    Past the last iteration, it continues with the first iteration of the enclosing loop's next iteration.
    """
    *around, loop = (s for s in path if isinstance(s, For))
    at = loop.var + distance
    if not around:
        return {loop.var: minimum(at, loop.extent - 1)}
    outer = around[-1]
    following = minimum(outer.var + cast(outer.var.dtype, at // loop.extent), outer.extent - 1)
    return {loop.var: at % loop.extent, outer.var: following}


def _constant_box(source: Buffer, bounds: Sequence[Bounds | None], analyzer: Analyzer) -> list[Range]:
    ranges = []
    for axis in bounds:
        extent = None if axis is None else analyzer.simplify(axis[1] - axis[0] + 1)
        if axis is None or not isinstance(extent, IntImm):
            raise ScheduleError(f"prefetch: the region that is read of {source.name!r} has no constant extents")
        ranges.append(Range(axis[0], const(extent.value, axis[0].dtype)))
    return ranges


def _touches(source: Buffer, box: Sequence[Range], level: int) -> Stmt:
    """Loops over a box with one prefetch per cache line, assuming that runs begin at multiples of a line.

    A run is the contiguous part of the box: the last axis, and the axes before it while the run is shorter than a line.
    """
    line = max(1, LINE // dt.nbytes(source.dtype))
    sizes = [r.extent.value for r in box if isinstance(r.extent, IntImm)]
    first = len(box) - 1
    while first and prod(sizes[first:]) < line and _is_whole(source, box, first):
        first -= 1
    counts = [*sizes[:first], -(-prod(sizes[first:]) // line)]
    loops = [Var(f"ax{i}") for i in range(len(counts))]
    *outer, inner = (loop if n > 1 else IntImm(0) for loop, n in zip(loops, counts, strict=True))
    analyzer = Analyzer()
    analyzer.bind(loops[-1], IntImm(counts[-1]))
    within = [analyzer.simplify(index) for index in _unflattened(inner * line, sizes[first:])]
    places = [r.min if is_const(at, 0) else r.min + at for r, at in zip(box, (*outer, *within), strict=True)]
    address = Call("address_of", (BufferLoad(source, tuple(places)),), "handle")
    wanted = [(loop, IntImm(n)) for loop, n in zip(loops, counts, strict=True) if n > 1]
    return loop_nest(wanted, Evaluate(Call(PREFETCHES[level], (address,), "handle")))


def _is_whole(source: Buffer, box: Sequence[Range], axis: int) -> bool:
    size = source.shape[axis]
    return is_const(box[axis].min, 0) and key(box[axis].extent) == key(size)


def _unflattened(place: PrimExpr, sizes: Sequence[int]) -> list[PrimExpr]:
    """The indices of the element at flat offset ``place`` of a row-major array."""
    indices: list[PrimExpr] = []
    for size in reversed(sizes[1:]):
        indices.append(place % size)
        place = place // size
    return [place, *reversed(indices)]
