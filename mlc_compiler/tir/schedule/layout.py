"""How parameters lie in memory."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import IntImm, PrimExpr, ceildiv, const
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter
from ..nodes import Block, Buffer, BufferLoad, BufferStore, For, PrimFunc
from .blocks import rebuilt
from .tree import ScheduleError


def tile_layout(func: PrimFunc, buffer: Buffer, axis: int, factor: int) -> tuple[PrimFunc, Buffer]:
    """Store a buffer with one axis cut into tiles of ``factor``, the tile innermost: ``[N, K] -> [ceil(N/f), K, f]``.

    ``buffer`` is a parameter; every access is rewritten; the attribute ``tiled`` notes ``{parameter: (axis, factor)}``.
    The last tile is padded; the padding is never a result.
    """
    index = next((i for i, p in enumerate(func.params) if p is buffer), None)
    if index is None:
        raise ScheduleError(f"tile_layout: {buffer.name!r} is no parameter of the function")
    rank = len(buffer.shape)
    if not 0 <= axis < rank or factor < 1:
        raise ScheduleError(f"tile_layout: got axis {axis} and factor {factor}; {buffer.name!r} has {rank} axes")
    if str(index) in func.attrs.get("tiled", {}):
        raise ScheduleError(f"tile_layout: {buffer.name!r} is tiled already")
    size = buffer.shape[axis]
    tiles = Analyzer().simplify(ceildiv(size, factor))
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
        return replace(node, body=body) if node.name == "root" else rebuilt(node, body, init)

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
