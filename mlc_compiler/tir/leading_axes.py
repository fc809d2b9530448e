"""Rewriter that replaces buffers by larger ones with additional leading axes, e.g. one slice per loop iteration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir.expr import Call, IntImm, PrimExpr
from ..ir.visitor import Rewriter
from .nodes import Buffer, BufferLoad, BufferStore, Stmt


@dataclass
class LeadingAxes(Rewriter):
    """Redirects accesses; ``parts``: ``id`` of a buffer -> the new buffer and the leading indices of its slice."""

    parts: dict[int, tuple[Buffer, tuple[PrimExpr, ...]]] = field(default_factory=dict)

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        node = self.rewrite_children(node)
        if id(node.buffer) not in self.parts:
            return node
        whole, part = self.parts[id(node.buffer)]
        return BufferLoad(whole, (*part, *node.indices))

    def rewrite_BufferStore(self, node: BufferStore) -> Stmt:
        node = self.rewrite_children(node)
        if id(node.buffer) not in self.parts:
            return node
        whole, part = self.parts[id(node.buffer)]
        return BufferStore(whole, node.value, (*part, *node.indices))

    def rewrite_Call(self, node: Call) -> PrimExpr:
        """Rewrite ``address_of(load, *extents)``: the box has extent 1 along the leading axes."""
        load, *extents = node.args or (node,)
        if node.op != "address_of" or not isinstance(load, BufferLoad) or id(load.buffer) not in self.parts:
            return self.rewrite_children(node)
        lead = [IntImm(1) for _ in self.parts[id(load.buffer)][1] if extents]
        return replace(node, args=(self(load), *lead, *extents))
