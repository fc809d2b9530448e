"""transform_layout: store a buffer in another layout and rewrite all accesses to it."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import PrimExpr
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, nodes_of
from ..index_map import IndexMap, IndexMapError
from ..nodes import Block, Buffer, BufferLoad, BufferStore, For, PrimFunc
from .blocks import accessed_buffer, rebuilt
from .tree import ScheduleError, find_block

LAYOUTS = "layouts"


def transform_layout(func: PrimFunc, block: str, which: str | tuple[str, int], index_map: IndexMap) -> PrimFunc:
    """Store a buffer that a block accesses, by name or as ``("read", i)`` or ``("write", i)``, in another layout."""
    buffer, _ = accessed_buffer("transform_layout", find_block(func, block).block, which)
    return with_layout(func, buffer, index_map)[0]


def with_layout(func: PrimFunc, buffer: Buffer, index_map: IndexMap) -> tuple[PrimFunc, Buffer]:
    """Store a buffer in the layout ``index_map``; returns the function and the new buffer.

    A parameter must then be passed in that layout, recorded as ``{position: index map}`` in the attribute ``layouts``.
    Padding is zero in parameters and undefined in intermediate buffers; no result depends on it.
    """
    position = next((i for i, p in enumerate(func.params) if p is buffer), None)
    known = {b.name for block in nodes_of(func.body, Block) for b in block.alloc_buffers if b is buffer}
    if position is None and not known:
        raise ScheduleError(f"transform_layout: {buffer.name!r} is no buffer of the function")
    if str(position) in func.attrs.get(LAYOUTS, {}):
        raise ScheduleError(f"transform_layout: {buffer.name!r} has another layout already")
    try:
        stored = replace(buffer, shape=index_map.stored_shape(buffer.shape))
    except IndexMapError as error:
        raise ScheduleError(f"transform_layout: {buffer.name!r}: {error.message}") from error
    func = replace(func, body=_Relocate(buffer, stored, index_map)(func.body))
    if position is None:
        return func, stored
    layouts = {**func.attrs.get(LAYOUTS, {}), str(position): index_map}
    params = tuple(stored if p is buffer else p for p in func.params)
    return replace(func, params=params, attrs={**func.attrs, LAYOUTS: layouts}), stored


class _Relocate(Rewriter):
    def __init__(self, old: Buffer, new: Buffer, index_map: IndexMap):
        self.old, self.new, self.index_map = old, new, index_map
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> For:
        self.analyzer.bind(node.var, node.extent)
        return self.rewrite_children(node)

    def rewrite_Block(self, node: Block) -> Block:
        for it in node.iter_vars:
            self.analyzer.bind(it.var, it.extent)
        body, init = self(node.body), self(node.init)
        own = any(b is self.old for b in node.alloc_buffers)
        if own:
            node = replace(node, alloc_buffers=tuple(self.new if b is self.old else b for b in node.alloc_buffers))
        if body is node.body and init is node.init:
            return node
        return replace(node, body=body) if node.name == "root" else rebuilt(node, body, init)

    def _stored(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return self.index_map(indices, self.analyzer)

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        inner = self(node.indices)
        if node.buffer is not self.old:
            return node if inner is node.indices else BufferLoad(node.buffer, inner)
        return BufferLoad(self.new, self._stored(inner))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        value, inner = self(node.value), self(node.indices)
        if node.buffer is not self.old:
            return BufferStore(node.buffer, value, inner)
        return BufferStore(self.new, value, self._stored(inner))
