"""reverse_compute_inline: inline an element-wise block into its producer."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import IntImm, PrimExpr, Var, const
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, nodes_of, substitute
from ..nodes import BlockRealize, Buffer, BufferLoad, BufferStore, PrimFunc
from .access import Access
from .affine import equal, is_one
from .blocks import block_nest, rebuilt
from .dependence import common_loops, conflicts, run_space
from .inline import definition
from .legality import all_accesses, check_first_use, check_intermediate, check_only_writer, split_by_block
from .tree import ScheduleError, analyzer_at, block_path, find_block, loops_above, replace_stmts, scope_of, with_allocs

STEP = "reverse_compute_inline"


def reverse_compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """Inline an element-wise block into the only producer of its input, which then writes the result."""
    realize, found = find_block(func, name), all_accesses(func)
    store = definition(STEP, realize)
    source = _intermediate(func, found, realize)
    producer = _producer(func, found, realize, source)
    produced = definition(STEP, producer)
    check_only_writer(STEP, found, realize, store.buffer)
    check_first_use(STEP, found, realize)
    _check_other_inputs(found, realize, producer, source)
    _check_whole(func, realize)
    variables = _variables(realize, store, source, produced)
    _check_extents(realize, producer, variables)
    value = _LoadToValue(source, produced.value)(substitute(store.value, variables))
    body = BufferStore(store.buffer, value, substitute(store.indices, variables))
    changed = replace(producer, block=rebuilt(producer.block, body))
    func = replace_stmts(func, {block_nest(func, name): None, producer: changed})
    return with_allocs(func, drop=(source,))


def _intermediate(func: PrimFunc, found: list[Access], realize: BlockRealize) -> Buffer:
    """The only intermediate buffer that the block reads. Raises ScheduleError unless this block is its only reader."""
    own, others = split_by_block(found, realize)
    written = {id(a.buffer) for a in others if a.is_write}
    reads = {id(a.buffer): a.buffer for a in own if not a.is_write and id(a.buffer) in written}
    if len(reads) != 1:
        names = ", ".join(repr(b.name) for b in reads.values()) or "none"
        raise ScheduleError(f"{STEP}: block {realize.block.name!r} must read one buffer of another block; got {names}")
    (source,) = reads.values()
    check_intermediate(STEP, func, source)
    readers = [a for a in others if a.buffer is source and not a.is_write]
    if readers:
        raise ScheduleError(f"{STEP}: {readers[0].block_name!r} also reads {source.name!r}")
    return source


def _producer(func: PrimFunc, found: list[Access], realize: BlockRealize, source: Buffer) -> BlockRealize:
    producers = {id(a.blocks[-1]): a.blocks[-1] for a in found if a.is_write and a.buffer is source and a.blocks}
    names = ", ".join(repr(p.block.name) for p in producers.values())
    if len(producers) != 1:
        raise ScheduleError(f"{STEP}: {source.name!r} is written by several blocks: {names}")
    producer = next(iter(producers.values()))
    scope, producer_scope = (scope_of(block_path(func, r.block.name)) for r in (realize, producer))
    if scope is not producer_scope:
        raise ScheduleError(f"{STEP}: {realize.block.name!r} and {names} are inside different blocks")
    return producer


def _check_other_inputs(found: list[Access], realize: BlockRealize, producer: BlockRealize, source: Buffer) -> None:
    """Raise ScheduleError when the block's other inputs are written after the producer's loops start."""
    own, others = split_by_block(found, realize)
    start = next(a for a in found if a.blocks and a.blocks[-1] is producer)
    writes = [o for o in others if o.is_write and o.buffer is not source]
    for conflict in conflicts(writes, [a for a in own if not a.is_write], ()):
        other = conflict.first
        if common_loops(other, start) or not other.place < start.place:
            raise ScheduleError(
                f"{STEP}: {other.block_name!r} has not written all of {other.buffer.name!r}, which "
                f"{realize.block.name!r} reads, when {producer.block.name!r} runs"
            )


def _check_whole(func: PrimFunc, realize: BlockRealize) -> None:
    path = block_path(func, realize.block.name)
    analyzer = analyzer_at(path[:-1])
    space = run_space(realize, loops_above(path), analyzer)
    for it, bounds in zip(realize.block.iter_vars, space or (), strict=False):
        if not (analyzer.prove(bounds[0] <= 0) and analyzer.prove(bounds[1] >= it.extent - 1)):
            space = None
    if space is None:
        raise ScheduleError(f"{STEP}: block {realize.block.name!r} does not run over all of its iteration space")


def _variables(realize: BlockRealize, store: BufferStore, source: Buffer, produced: BufferStore) -> dict[Var, PrimExpr]:
    """Express the block's variables by the producer's."""
    error = ScheduleError(f"{STEP}: {realize.block.name!r} is not indexed like {source.name!r}")
    units = {it.var: const(0, it.var.dtype) for it in realize.block.iter_vars if is_one(it.extent)}
    mapping: dict[Var, PrimExpr] = {}
    for load in (n for n in nodes_of(store.value, BufferLoad) if n.buffer is source):
        for index, stored in zip(load.indices, produced.indices, strict=True):
            same = isinstance(index, Var) and mapping.setdefault(index, stored) is stored
            if not same and not (isinstance(index, IntImm) and isinstance(stored, IntImm)):
                raise error
    for it in realize.block.iter_vars:
        if it.var not in mapping and it.var not in units:
            name = realize.block.name
            raise ScheduleError(f"{STEP}: {name!r} reads the same of {source.name!r} for each {it.var.name!r}")
    if len({id(v) for v in mapping.values() if isinstance(v, Var)}) != len(mapping):
        raise error
    return {**units, **mapping}


def _check_extents(realize: BlockRealize, producer: BlockRealize, variables: dict[Var, PrimExpr]) -> None:
    analyzer = Analyzer()
    for it in realize.block.iter_vars:
        value = variables[it.var]
        own = next((p.extent for p in producer.block.iter_vars if p.var is value), IntImm(1))
        if not equal(own, it.extent, analyzer):
            names = f"{realize.block.name!r} and {producer.block.name!r}"
            raise ScheduleError(f"{STEP}: {names} run over different extents of {it.var.name!r}")


class _LoadToValue(Rewriter):
    def __init__(self, buffer: Buffer, value: PrimExpr):
        self.buffer, self.value = buffer, value

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return self.value if node.buffer is self.buffer else self.rewrite_children(node)
