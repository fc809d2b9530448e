"""compute_inline: inline element-wise blocks into their consumers."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import BinaryOp, Call, IntImm, PrimExpr, Var, const
from ...ir.simplify import simplify
from ...ir.visitor import Rewriter, nodes_of, substitute
from ..nodes import Block, BlockRealize, Buffer, BufferLoad, BufferRegion, BufferStore, PrimFunc
from .access import Access
from .affine import is_one
from .blocks import block_nest, rebuilt
from .legality import all_accesses, check_inputs_final, check_intermediate, check_only_writer, split_by_block
from .tree import ScheduleError, find_block, replace_stmts, single_store, with_allocs


def definition(step: str, realize: BlockRealize) -> BufferStore:
    """Return the store of an element-wise block, whose indices are distinct block variables.

    Block variables of extent 1 are replaced by zero. Raises ScheduleError for other blocks.
    """
    block = realize.block
    store = single_store(block)
    if block.is_reduction or block.init is not None:
        raise ScheduleError(f"{step}: block {block.name!r} is a reduction")
    if any(load.buffer is store.buffer for load in nodes_of(store.value, BufferLoad)):
        raise ScheduleError(f"{step}: block {block.name!r} reads {store.buffer.name!r}, which it writes")
    units = {it.var: const(0, it.var.dtype) for it in block.iter_vars if is_one(it.extent)}
    indices, value = substitute(store.indices, units), substitute(store.value, units)
    plain = [i for i in indices if isinstance(i, Var)]
    if len({id(v) for v in plain}) != len(plain) or any(not isinstance(i, Var | IntImm) for i in indices):
        raise ScheduleError(f"{step}: block {block.name!r} writes {store.buffer.name!r} at computed indices")
    for index, size in zip(indices, store.buffer.shape, strict=True):
        if isinstance(index, IntImm) and not is_one(size):
            raise ScheduleError(f"{step}: block {block.name!r} writes only a part of {store.buffer.name!r}")
    missing = [it.var.name for it in block.iter_vars if it.var not in units and all(it.var is not v for v in plain)]
    if missing:
        raise ScheduleError(f"{step}: block {block.name!r} writes the same elements for each {', '.join(missing)}")
    return BufferStore(store.buffer, value, indices)


class _InlineLoads(Rewriter):
    """Replaces loads of a buffer by its definition, and infers the regions of changed blocks.

    Quotients and remainders in the definition are simplified in the range of the reader's variables.
    """

    def __init__(self, store: BufferStore):
        self.store = store
        self.divides = any(n.op in ("//", "%") for n in nodes_of(store.value, BinaryOp))
        self.ranges: dict[Var, PrimExpr] = {}

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        indices = self(node.indices)
        if node.buffer is not self.store.buffer:
            return node if indices is node.indices else BufferLoad(node.buffer, indices)
        pairs = zip(self.store.indices, indices, strict=True)
        inlined = substitute(self.store.value, {v: i for v, i in pairs if isinstance(v, Var)})
        return simplify(inlined, self.ranges) if self.divides else inlined

    def rewrite_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return node

    def rewrite_Block(self, node: Block) -> Block:
        around, self.ranges = self.ranges, {**self.ranges, **{it.var: it.extent for it in node.iter_vars}}
        body, init = self(node.body), self(node.init)
        self.ranges = around
        if body is node.body and init is node.init:
            return node
        return replace(node, body=body, init=init) if node.name == "root" else rebuilt(node, body, init)


def compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """Replace every read of an element-wise block's result by its expression, and remove the block."""
    step, realize = "compute_inline", find_block(func, name)
    store = definition(step, realize)
    check_intermediate(step, func, store.buffer)
    found = all_accesses(func)
    check_only_writer(step, found, realize, store.buffer)
    check_inputs_final(step, found, realize)
    _check_readers(step, found, realize, store.buffer)
    if _is_addressed(func, store.buffer):
        raise ScheduleError(f"{step}: an instruction takes the address of {store.buffer.name!r}")
    func = replace_stmts(func, {block_nest(func, name): None})
    inlined = _InlineLoads(store)(func.body)
    return with_allocs(replace(func, body=inlined), drop=(store.buffer,))


def _is_addressed(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether an instruction, such as a prefetch, takes the address of an element."""
    addressed = (n.args[0] for n in nodes_of(func.body, Call) if n.op == "address_of")
    return any(isinstance(load, BufferLoad) and load.buffer is buffer for load in addressed)


def _check_readers(step: str, found: list[Access], realize: BlockRealize, buffer: Buffer) -> None:
    own, others = split_by_block(found, realize)
    readers = [a for a in others if a.buffer is buffer]
    if not readers:
        raise ScheduleError(f"{step}: nothing reads what block {realize.block.name!r} computes")
    for reader in readers:
        if reader.place < own[0].place:
            raise ScheduleError(f"{step}: {reader.block_name!r} reads {buffer.name!r} before it is written")
        if any(not is_one(r.extent) for r in reader.box):
            raise ScheduleError(f"{step}: an instruction in {reader.block_name!r} reads {buffer.name!r} from memory")
