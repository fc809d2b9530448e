"""reindex: copy a buffer to one whose indices are the variables of a block that accesses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...ir.expr import Call, PrimExpr, Var
from ...ir.simplify import Analyzer, key
from ...ir.visitor import Rewriter, free_vars, nodes_of, substitute
from ..nodes import Block, BlockRealize, Buffer, BufferLoad, BufferStore, IterVar, PrimFunc, Stmt, loop_nest, seq
from ..regions import accesses, infer_regions
from .access import accesses_in
from .affine import is_one
from .blocks import accessed_buffer, block_nest, rebuilt, with_intermediate
from .caching import check_written
from .dependence import one_to_one, run_space
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    loops_above,
    loops_in,
    replace_stmts,
    true,
    unique_block_name,
    unique_buffer_name,
)

STEP = "reindex"


@dataclass(frozen=True)
class _Use:
    """The one place of a buffer that a block accesses. iters: the block's variables in ``indices``."""

    realize: BlockRealize
    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    iters: tuple[IterVar, ...]
    analyzer: Analyzer

    @property
    def name(self) -> str:
        return self.realize.block.name

    def error(self, why: str) -> ScheduleError:
        return ScheduleError(f"{STEP}: block {self.name!r} {why}")


def reindex(func: PrimFunc, name: str, which: str | tuple[str, int]) -> tuple[PrimFunc, str]:
    """Redirect a block's accesses of a buffer to an intermediate one, indexed by the block's variables.

    A new block copies what the block reads before its loops, or what it wrote after them. Returns its name, that of the
    buffer that it writes with ``_reindex``.
    which: the buffer, see ``accessed_buffer``. Raises ScheduleError unless the block accesses it at one place, and the
    copy moves the elements that the block accesses, for its whole iteration space.
    """
    realize, nest = find_block(func, name), block_nest(func, name)
    buffer, writes = accessed_buffer(STEP, realize.block, which)
    _check_nest(func, name, nest)
    use = _use(func, realize, buffer)
    _check_space(func, use)
    if writes:
        _check_writes(use)
    else:
        _check_reads(func, use)
    shape = tuple(it.extent for it in use.iters)
    cache = replace(buffer, name=unique_buffer_name(func, f"{buffer.name}_reindex"), shape=shape)
    copy_name = unique_block_name(func, f"{(buffer if writes else cache).name}_reindex")
    changed = _Redirect(buffer, cache, tuple(it.var for it in use.iters))
    block = rebuilt(realize.block, changed(realize.block.body), changed(realize.block.init))
    func = replace_stmts(func, {realize: replace(realize, block=block)})
    copy, nest = _copy(use, cache, copy_name, writes), block_nest(func, name)
    func = replace_stmts(func, {nest: seq(nest, copy) if writes else seq(copy, nest)})
    return with_intermediate(func, cache, copy_name), copy_name


def _check_nest(func: PrimFunc, name: str, nest: Stmt) -> None:
    own = {id(lp.var) for lp in loops_in(nest)}
    shared = [lp for lp in loops_above(block_path(func, name)) if id(lp.var) not in own]
    if shared:
        raise ScheduleError(f"{STEP}: loop {shared[-1].var.name!r} around block {name!r} holds other blocks too")


def _use(func: PrimFunc, realize: BlockRealize, buffer: Buffer) -> _Use:
    block, analyzer = realize.block, analyzer_at(block_path(func, realize.block.name))
    places = {key(n.indices): n.indices for n in _touches(block, buffer)}
    wide = any(a.buffer is buffer and not all(is_one(r.extent) for r in a.box) for a in accesses_in(realize))
    if len(places) != 1 or wide or loops_in(block.body):
        raise ScheduleError(f"{STEP}: block {block.name!r} accesses {buffer.name!r} at more than one place")
    (indices,) = places.values()
    indices = tuple(i if isinstance(i, Var) else analyzer.simplify(i) for i in indices)
    used = {id(v) for v in free_vars(indices)}
    return _Use(realize, buffer, indices, tuple(it for it in block.iter_vars if id(it.var) in used), analyzer)


def _touches(block: Block, buffer: Buffer) -> list[BufferLoad | BufferStore]:
    loads, stores = accesses((block.init, block.body))
    touches: list[BufferLoad | BufferStore] = [*loads, *stores]
    return [n for n in touches if n.buffer is buffer]


def _check_space(func: PrimFunc, use: _Use) -> None:
    """Raise ScheduleError unless the block runs for each value of its variables, as the copy does."""
    path = block_path(func, use.name)
    space = run_space(use.realize, loops_above(path), analyzer_at(path[:-1]))
    pairs = zip(space or (), use.realize.block.iter_vars, strict=False)
    if space is None or not all(_is_whole(bounds, it, use.analyzer) for bounds, it in pairs):
        raise use.error("is not known to run once for each value of its variables")


def _check_reads(func: PrimFunc, use: _Use) -> None:
    """Raise ScheduleError unless all elements that the copy reads exist, and the block leaves them as they are."""
    block = use.realize.block
    if any(r.buffer is use.buffer for r in block.writes):
        raise use.error(f"writes {use.buffer.name!r}, which it reads")
    for index, size in zip(use.indices, use.buffer.shape, strict=True):
        if not (use.analyzer.prove(index >= 0) and use.analyzer.prove(index < size)):
            raise use.error(
                f"reads {use.buffer.name!r} at an index that is not known to be inside for all its variables"
            )
    if any(n.op == "if_then_else" for n in nodes_of((block.init, block.body), Call)):
        check_written(STEP, func, use.realize, use.buffer)


def _check_writes(use: _Use) -> None:
    """Raise ScheduleError unless the block writes each element that the copy moves, for one value of its variables."""
    block, name = use.realize.block, use.buffer.name
    if block.init is None and any(isinstance(n, BufferLoad) for n in _touches(block, use.buffer)):
        raise use.error(f"reads {name!r}, which it writes")
    extents = {it.var: it.extent for it in use.iters}
    if any(it.kind != "S" for it in use.iters) or not one_to_one(use.indices, extents, set(), use.analyzer):
        raise use.error(f"writes elements of {name!r} for several values of its variables")


def _is_whole(bounds: tuple[PrimExpr, PrimExpr], it: IterVar, analyzer: Analyzer) -> bool:
    return analyzer.prove(bounds[0] <= 0) and analyzer.prove(bounds[1] >= it.extent - 1)


class _Redirect(Rewriter):
    """Replaces all accesses of a buffer by accesses of another one at ``indices``."""

    def __init__(self, old: Buffer, new: Buffer, indices: tuple[PrimExpr, ...]):
        self.old, self.new, self.indices = old, new, indices

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return BufferLoad(self.new, self.indices) if node.buffer is self.old else self.rewrite_children(node)

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        value = self(node.value)
        if node.buffer is self.old:
            return BufferStore(self.new, value, self.indices)
        return BufferStore(node.buffer, value, self(node.indices))


def _copy(use: _Use, cache: Buffer, name: str, writes: bool) -> Stmt:
    """Loops around the block that copies the elements of a use from or to ``cache``."""
    fresh: Mapping[Var, PrimExpr] = {it.var: Var(f"v{i}", it.var.dtype) for i, it in enumerate(use.iters)}
    iters = tuple(IterVar(fresh[it.var], it.extent, "S") for it in use.iters)  # type: ignore[arg-type]
    loops = [(Var(f"ax{i}", it.var.dtype), it.extent) for i, it in enumerate(use.iters)]
    own, place = tuple(it.var for it in iters), substitute(use.indices, fresh)
    store = BufferStore(use.buffer, cache[own], place) if writes else BufferStore(cache, use.buffer[place], own)
    block = Block(name, iters, *infer_regions(store, iters), store)
    return loop_nest(loops, BlockRealize(tuple(var for var, _ in loops), true(), block))
