"""Block transformations: inlining, caching, moving a block under a loop, separating a reduction's initialisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.expr import IntImm, PrimExpr, Var, const, logical_and
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, substitute, uses, walk
from ..nodes import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from ..regions import accesses, infer_regions, span
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    consumers,
    find_block,
    find_loop,
    is_output,
    loop_path,
    loops_above,
    producers,
    replace_stmts,
    root_of,
    single_store,
    true,
    union,
    unique_block_name,
    with_allocs,
    with_body,
)


def block_nest(func: PrimFunc, name: str) -> Stmt:
    """The largest loop nest that holds this block and nothing else."""
    path = block_path(func, name)
    nest: Stmt = path[-1]
    for stmt in reversed(path[:-1]):
        if not isinstance(stmt, For):
            break
        nest = stmt
    return nest


def _spatial_store(func: PrimFunc, name: str) -> tuple[BlockRealize, BufferStore]:
    """A block of one store whose indices are its own distinct variables (or constants on axes of size one)."""
    realize = find_block(func, name)
    store = single_store(realize.block)
    plain = [i for i in store.indices if isinstance(i, Var)]
    if realize.block.init is not None or len({id(v) for v in plain}) != len(plain):
        raise ScheduleError(f"block {name!r} is not a plain element-wise definition of {store.buffer.name!r}")
    if any(not isinstance(i, Var | IntImm) for i in store.indices):
        raise ScheduleError(f"block {name!r} writes {store.buffer.name!r} at computed indices")
    return realize, store


class _InlineLoads(Rewriter):
    """Replaces loads of a buffer by its definition, and updates the regions of blocks on the way out."""

    def __init__(self, store: BufferStore):
        self.store = store

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        indices = self(node.indices)
        if node.buffer is not self.store.buffer:
            return node if indices is node.indices else BufferLoad(node.buffer, indices)
        pairs = zip(self.store.indices, indices, strict=True)
        return substitute(self.store.value, {v: i for v, i in pairs if isinstance(v, Var)})

    def rewrite_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def rewrite_Block(self, node: Block) -> Block:
        body, init = self(node.body), self(node.init)
        if body is node.body and init is node.init:
            return node
        return replace(node, body=body, init=init) if node.name == "root" else with_body(node, body, init)


def compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """Replace every read of what this element-wise block computes by the computation, and drop the block."""
    _, store = _spatial_store(func, name)
    if is_output(func, store.buffer):
        raise ScheduleError(f"compute_inline: {store.buffer.name!r} is an output of the function")
    if len(producers(func, store.buffer)) > 1:
        raise ScheduleError(f"compute_inline: {store.buffer.name!r} is written by several blocks")
    func = replace_stmts(func, {block_nest(func, name): None})
    inlined = _InlineLoads(store)(func.body)
    return with_allocs(replace(func, body=inlined), drop=(store.buffer,))


def reverse_compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """Move an element-wise block into the only block that produces its input, which then writes the final result."""
    realize, store = _spatial_store(func, name)
    loads = {id(ld.buffer): ld.buffer for ld in accesses(realize.block.body)[0]}
    inner = [b for b in loads.values() if producers(func, b) and not is_output(func, b)]
    if len(inner) != 1:
        raise ScheduleError(f"reverse_compute_inline: block {name!r} must read exactly one intermediate buffer")
    source = inner[0]
    (producer_name,) = producers(func, source)
    producer, produced = _spatial_store(func, producer_name)
    if consumers(func, source) != [name]:
        raise ScheduleError(f"reverse_compute_inline: {source.name!r} has other readers than {name!r}")
    load = next(ld for ld in accesses(realize.block.body)[0] if ld.buffer is source)
    mapping = {i: p for i, p in zip(load.indices, produced.indices, strict=True) if isinstance(i, Var)}
    if any(it.var not in mapping for it in realize.block.iter_vars if not _is_one(it.extent)):
        raise ScheduleError(f"reverse_compute_inline: {name!r} is not indexed like {source.name!r}")
    for it in realize.block.iter_vars:
        mapping.setdefault(it.var, IntImm(0))
    value = _LoadToValue(source, produced.value)(substitute(store.value, mapping))
    body = BufferStore(store.buffer, value, substitute(store.indices, mapping))
    block = replace(with_body(producer.block, body), name=name)
    func = replace_stmts(func, {block_nest(func, name): None, producer: replace(producer, block=block)})
    return with_allocs(func, drop=(source,))


class _LoadToValue(Rewriter):
    def __init__(self, buffer: Buffer, value: PrimExpr):
        self.buffer, self.value = buffer, value

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return self.value if node.buffer is self.buffer else self.rewrite_children(node)


def _is_one(expr: PrimExpr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 1


class _SwapBuffer(Rewriter):
    def __init__(self, old: Buffer, new: Buffer):
        self.old, self.new = old, new

    def rewrite_Buffer(self, node: Buffer) -> Buffer:
        return self.new if node is self.old else node


def _copy_nest(source: Buffer, target: Buffer, name: str) -> Stmt:
    block_vars = [Var(f"v{i}") for i in range(len(source.shape))]
    loop_vars = [Var(f"ax{i}") for i in range(len(source.shape))]
    store = BufferStore(target, source[tuple(block_vars)], tuple(block_vars))
    iters = tuple(IterVar(v, s, "S") for v, s in zip(block_vars, source.shape, strict=True))
    reads, writes = infer_regions(store, iters)
    stmt: Stmt = BlockRealize(tuple(loop_vars), true(), Block(name, iters, reads, writes, store))
    for v, s in zip(reversed(loop_vars), reversed(source.shape), strict=True):
        stmt = For(v, s, stmt)
    return stmt


def cache_write(func: PrimFunc, name: str, scope: str) -> tuple[PrimFunc, str]:
    """Let a block write to a buffer of ``scope``, and a new block copy that to where the block wrote before."""
    realize = find_block(func, name)
    target = accesses(realize.block.body)[1][0].buffer
    cache = replace(target, name=f"{target.name}_{scope}", scope=scope)
    copy_name = unique_block_name(func, f"{target.name}_{scope}")
    nest = block_nest(func, name)
    changed = _SwapBuffer(target, cache)(nest)
    func = replace_stmts(func, {nest: seq(changed, _copy_nest(cache, target, copy_name))})
    return with_allocs(func, (cache,)), copy_name


def cache_read(func: PrimFunc, name: str, read_index: int, scope: str) -> tuple[PrimFunc, str]:
    """Let a block read its ``read_index``-th buffer from a copy in ``scope``; a new block before it makes the copy."""
    realize = find_block(func, name)
    if read_index >= len(realize.block.reads):
        count = len(realize.block.reads)
        raise ScheduleError(f"cache_read: block {name!r} reads {count} buffers; asked for {read_index}")
    source = realize.block.reads[read_index].buffer
    cache = replace(source, name=f"{source.name}_{scope}", scope=scope)
    copy_name = unique_block_name(func, f"{source.name}_{scope}")
    nest = block_nest(func, name)
    changed = _SwapBuffer(source, cache)(nest)
    func = replace_stmts(func, {nest: seq(_copy_nest(source, cache, copy_name), changed)})
    return with_allocs(func, (cache,)), copy_name


# -- moving blocks ------------------------------------------------------------------------------------------------


def _region_under(loop: For, path: tuple[Stmt, ...], buffer: Buffer, writes: bool) -> tuple[Range, ...] | None:
    """The box of ``buffer`` that one iteration of ``loop`` touches, in terms of the loops at and above it."""
    analyzer = analyzer_at(path)
    regions: list[BufferRegion] = []

    def visit(stmt: object, inner: dict[Var, PrimExpr], bound: dict[Var, PrimExpr]) -> bool:
        if isinstance(stmt, For):
            analyzer.bind(stmt.var, stmt.extent)
            return visit(stmt.body, {**inner, stmt.var: stmt.extent}, bound)
        if isinstance(stmt, SeqStmt):
            return all(visit(s, inner, bound) for s in stmt.stmts)
        if isinstance(stmt, BlockRealize):
            return _block_regions(stmt, inner, analyzer, buffer, writes, regions)
        return True

    if not visit(loop.body, {}, {}) or not regions:
        return None
    return union(regions, analyzer)


def _block_regions(
    realize: BlockRealize,
    inner: dict[Var, PrimExpr],
    analyzer: Analyzer,
    buffer: Buffer,
    writes: bool,
    out: list[BufferRegion],
) -> bool:
    block = realize.block
    binding = {it.var: v for it, v in zip(block.iter_vars, realize.iter_values, strict=True)}
    for region in block.writes if writes else block.reads:
        if region.buffer is not buffer:
            continue
        ranges = []
        for r in region.region:
            start = span(analyzer.simplify(substitute(r.min, binding)), inner, analyzer)
            if start is None:
                return False
            extent = analyzer.simplify(substitute(r.extent, binding) - 1 + start.extent)
            ranges.append(Range(start.min, extent))
        out.append(BufferRegion(buffer, tuple(ranges)))
    return True


def _nest_over(realize: BlockRealize, domain: dict[Var, Range], analyzer: Analyzer, prefix: str = "ax") -> Stmt:
    """A new loop nest that runs a block over ``domain`` (block variable -> range)."""
    values: list[PrimExpr] = []
    loops: list[tuple[Var, PrimExpr]] = []
    predicate: PrimExpr = true()
    for it in realize.block.iter_vars:
        r = domain.get(it.var, Range(IntImm(0), it.extent))
        if _is_one(r.extent):
            values.append(r.min)
            continue
        loop = Var(f"{prefix}{len(loops)}")
        analyzer.bind(loop, r.extent)
        value = analyzer.simplify(r.min + loop)
        loops.append((loop, r.extent))
        values.append(value)
        if not analyzer.prove(value < it.extent):
            predicate = logical_and(predicate, value < it.extent)
    stmt: Stmt = replace(realize, iter_values=tuple(values), predicate=predicate)
    for loop, extent in reversed(loops):
        stmt = For(loop, extent, stmt)
    return stmt


def reverse_compute_at(func: PrimFunc, name: str, var: Var) -> PrimFunc:
    """Move a consumer block under a loop, at its end: it then handles what one iteration of the loop has produced."""
    loop, path = find_loop(func, var), loop_path(func, var)
    realize = find_block(func, name)
    domain: dict[Var, Range] = {}
    for region in realize.block.reads:
        box = _region_under(loop, path, region.buffer, writes=True)
        if box is None:
            continue
        for r, available in zip(region.region, box, strict=True):
            if isinstance(r.min, Var):
                domain[r.min] = available
            elif uses_any(r.min, realize.block.iter_vars):
                raise ScheduleError(f"reverse_compute_at: {name!r} reads {region.buffer.name!r} at a computed index")
    if not domain:
        raise ScheduleError(f"reverse_compute_at: loop {var.name!r} produces nothing that block {name!r} reads")
    nest = block_nest(func, name)
    moved = _nest_over(realize, domain, analyzer_at(path))
    return _place(func, nest, loop, seq(loop.body, moved))


def compute_at(func: PrimFunc, name: str, var: Var) -> PrimFunc:
    """Move a producer block under a loop, at its start: it then computes what one iteration of the loop reads."""
    loop, path = find_loop(func, var), loop_path(func, var)
    realize = find_block(func, name)
    store = accesses(realize.block.body)[1][0]
    if is_output(func, store.buffer):
        raise ScheduleError(f"compute_at: {store.buffer.name!r} is an output of the function")
    inside = {n.block.name for n in walk(loop) if isinstance(n, BlockRealize)}
    outside = [c for c in consumers(func, store.buffer) if c not in inside]
    if outside:
        others = ", ".join(outside)
        raise ScheduleError(f"compute_at: {others} outside loop {var.name!r} also reads {store.buffer.name!r}")
    box = _region_under(loop, path, store.buffer, writes=False)
    if box is None:
        raise ScheduleError(f"compute_at: what loop {var.name!r} reads of {store.buffer.name!r} is not a box")
    domain = {i: r for i, r in zip(store.indices, box, strict=True) if isinstance(i, Var)}
    nest = block_nest(func, name)
    moved = _nest_over(realize, domain, analyzer_at(path))
    return _place(func, nest, loop, seq(moved, loop.body))


def _place(func: PrimFunc, old_nest: Stmt, loop: For, body: Stmt) -> PrimFunc:
    func = replace_stmts(func, {loop: replace(loop, body=body)})
    return replace_stmts(func, {old_nest: None})


def uses_any(expr: PrimExpr, iter_vars: Sequence[IterVar]) -> bool:
    return any(uses(expr, it.var) for it in iter_vars)


def decompose_reduction(func: PrimFunc, name: str, var: Var) -> tuple[PrimFunc, str]:
    """Run a reduction's initialisation as a block of its own just before the loop ``var``; returns its name."""
    path = block_path(func, name)
    realize: BlockRealize = path[-1]  # type: ignore[assignment]
    if realize.block.init is None:
        raise ScheduleError(f"decompose_reduction: block {name!r} has no initialisation")
    loops = loops_above(path)
    position = next((i for i, lp in enumerate(loops) if lp.var is var), None)
    if position is None:
        raise ScheduleError(f"decompose_reduction: loop {var.name!r} does not enclose block {name!r}")
    _check_reduction_inside(realize, loops[:position])
    init_name = f"{name}_init"
    init = _init_nest(realize, loops[position:], init_name)
    update = replace(realize, block=replace(realize.block, name=f"{name}_update", init=None))
    update = replace(update, block=with_accumulator_read(update.block))
    func = replace_stmts(func, {realize: update})
    target = find_loop(func, var)
    return replace_stmts(func, {target: seq(init, target)}), init_name


def with_accumulator_read(block: Block) -> Block:
    """An update block reads what it accumulates into."""
    return replace(block, reads=(*block.writes, *block.reads))


def _check_reduction_inside(realize: BlockRealize, outer: Sequence[For]) -> None:
    for it, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        for loop in outer:
            if it.kind == "R" and uses(value, loop.var):
                raise ScheduleError(
                    f"decompose_reduction: reduction loop {loop.var.name!r} lies outside; choose it or a loop above it"
                )


def _init_nest(realize: BlockRealize, loops: Sequence[For], name: str) -> Stmt:
    block = realize.block
    assert block.init is not None
    spatial = [(it, v) for it, v in zip(block.iter_vars, realize.iter_values, strict=True) if it.kind == "S"]
    renamed = {lp.var: Var(f"{lp.var.name}_init") for lp in loops}
    fresh = {it.var: Var(it.var.name) for it, _ in spatial}
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it, _ in spatial)
    body = substitute(block.init, fresh)
    _, writes = infer_regions(body, iters)
    values = tuple(substitute(v, renamed) for _, v in spatial)
    reduction_vars = {id(lp.var) for lp in loops if not any(uses(v, lp.var) for _, v in spatial)}
    predicate = true() if _mentions(realize.predicate, reduction_vars) else substitute(realize.predicate, renamed)
    stmt: Stmt = BlockRealize(values, predicate, Block(name, iters, (), writes, body))
    for lp in reversed(loops):
        if id(lp.var) not in reduction_vars:
            stmt = For(renamed[lp.var], lp.extent, stmt, lp.kind, lp.thread, lp.annotations)
    return stmt


def _mentions(expr: PrimExpr, ids: set[int]) -> bool:
    return any(isinstance(n, Var) and id(n) in ids for n in walk(expr))


# -- layout -------------------------------------------------------------------------------------------------------


def tile_layout(func: PrimFunc, buffer: Buffer, axis: int, factor: int) -> tuple[PrimFunc, Buffer]:
    """Store a buffer with one axis cut into tiles of ``factor``, the tile innermost: ``[N, K] -> [ceil(N/f), K, f]``.

    ``buffer`` is a parameter; every access is rewritten; the attribute ``tiled`` notes ``{parameter: (axis, factor)}``.
    The last tile is padded; the padding is never a result.
    """
    index = next(i for i, p in enumerate(func.params) if p is buffer)
    size = buffer.shape[axis]
    tiles = Analyzer().simplify((size + (factor - 1)) // const(factor, "int64"))
    shape = (*buffer.shape[:axis], tiles, *buffer.shape[axis + 1 :], IntImm(factor))
    tiled = replace(buffer, shape=shape)
    func = replace(func, body=_Tile(buffer, tiled, axis, factor)(func.body))
    tiles_of = {**func.attrs.get("tiled", {}), str(index): (axis, factor)}
    params = tuple(tiled if p is buffer else p for p in func.params)
    return replace(func, params=params, attrs={**func.attrs, "tiled": tiles_of}), tiled


class _Tile(Rewriter):
    def __init__(self, old: Buffer, new: Buffer, axis: int, factor: int):
        self.old, self.new, self.axis, self.factor = old, new, axis, factor
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> For:
        self.analyzer.bind(node.var, node.extent)
        return self.rewrite_children(node)

    def rewrite_Block(self, node: Block) -> Block:
        for it in node.iter_vars:
            self.analyzer.bind(it.var, it.extent)
        body, init = self(node.body), self(node.init)
        if body is node.body and init is node.init:
            return node
        return replace(node, body=body) if node.name == "root" else with_body(node, body, init)

    def indices(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        i = indices[self.axis]
        tile = self.analyzer.simplify(i // const(self.factor, i.dtype))
        lane = self.analyzer.simplify(i % const(self.factor, i.dtype))
        return (*indices[: self.axis], tile, *indices[self.axis + 1 :], lane)

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        inner = self(node.indices)
        if node.buffer is not self.old:
            return node if inner is node.indices else BufferLoad(node.buffer, inner)
        return BufferLoad(self.new, self.indices(inner))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        value, inner = self(node.value), self(node.indices)
        if node.buffer is not self.old:
            return BufferStore(node.buffer, value, inner)
        return BufferStore(self.new, value, self.indices(inner))


def drop_unused_allocs(func: PrimFunc) -> PrimFunc:
    """Forget intermediate buffers that nothing accesses."""
    used = {id(n.buffer) for n in walk(func.body) if isinstance(n, BufferLoad | BufferStore)}
    return with_allocs(func, drop=tuple(b for b in root_of(func).block.alloc_buffers if id(b) not in used))
