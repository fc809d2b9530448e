"""Blocks to plain loops: variables bound, initialisations guarded, intermediate buffers placed and shrunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.expr import BinaryOp, Call, IntImm, PrimExpr, Var, const, logical_and
from ..ir.module import IRModule
from ..ir.simplify import Analyzer
from ..ir.visitor import Rewriter, substitute, uses, walk
from ..tir.nodes import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    is_root,
)
from ..tir.regions import accesses, span
from .base import Pass


@dataclass(frozen=True)
class LowerBlocks(Pass):
    """Tensor functions without blocks: loops, stores, conditionals and allocations of the size that is really live."""

    name = "lower-blocks"

    def run(self, mod: IRModule) -> IRModule:
        funcs = {name: lower_blocks(f) for name, f in mod.of_type(PrimFunc).items() if is_root(f.body)}
        return mod.updated(funcs)


def lower_blocks(func: PrimFunc) -> PrimFunc:
    """One function; see :class:`LowerBlocks`."""
    lowering = _Lower(func)
    body = lowering(func.body)
    for buffer in reversed(lowering.allocs):
        body = _place(body, buffer)
    return replace(func, body=body)


class _Lower(Rewriter):
    def __init__(self, func: PrimFunc):
        self.analyzer = Analyzer()
        self.allocs: list[Buffer] = []

    def __call__(self, node: Any) -> Any:
        return node if isinstance(node, PrimExpr) else super().__call__(node)

    def rewrite_For(self, node: For) -> Stmt:
        extent = self.analyzer.simplify(node.extent)
        self.analyzer.bind(node.var, extent)
        body = self(node.body)
        if isinstance(extent, IntImm) and extent.value == 1 and node.thread is None:
            return Simplify(self.analyzer)(substitute(body, {node.var: IntImm(0)}))
        return replace(node, extent=extent, body=body)

    def rewrite_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = node.block
        self.allocs.extend(block.alloc_buffers)
        binding = {it.var: v for it, v in zip(block.iter_vars, node.iter_values, strict=True)}
        simplify = Simplify(self.analyzer)
        body = self(simplify(substitute(block.body, binding)))
        if block.init is not None:
            init = simplify(substitute(block.init, binding))
            body = _after_init(body, init, node, self.analyzer)
        predicate = self._needed(node, body)
        return body if isinstance(predicate, IntImm) and predicate.value else IfThenElse(predicate, body)

    def _needed(self, node: BlockRealize, body: Stmt) -> PrimExpr:
        """The block's predicate less the conditions that only keep it from computing values nobody reads."""
        terms = _conjuncts(node.predicate)
        if not terms or not self._writes_scratch(body):
            return node.predicate
        return logical_and(*(t for t in terms if self._guards_reduction(node, t) or not self._in_bounds(body)))

    def _writes_scratch(self, body: Stmt) -> bool:
        return all(s.buffer.scope == "local" for s in accesses(body)[1])

    def _guards_reduction(self, node: BlockRealize, term: PrimExpr) -> bool:
        variables = [n for n in walk(term) if isinstance(n, Var)]
        reductions = [v for it, v in zip(node.block.iter_vars, node.iter_values, strict=True) if it.kind == "R"]
        return any(uses(value, var) for value in reductions for var in variables)

    def _in_bounds(self, body: Stmt) -> bool:
        for load in accesses(body)[0]:
            if load.buffer.scope == "local":
                continue
            for index, size in zip(load.indices, load.buffer.shape, strict=True):
                if not (self.analyzer.prove(index >= 0) and self.analyzer.prove(index < size)):
                    return False
        return True


def _conjuncts(expr: PrimExpr) -> list[PrimExpr]:
    if isinstance(expr, BinaryOp) and expr.op == "and":
        return _conjuncts(expr.a) + _conjuncts(expr.b)
    return [] if isinstance(expr, IntImm) and expr.value else [expr]


def _after_init(body: Stmt, init: Stmt, node: BlockRealize, analyzer: Analyzer) -> Stmt:
    first = logical_and(
        *(
            analyzer.simplify(v == const(0, v.dtype))
            for it, v in zip(node.block.iter_vars, node.iter_values, strict=True)
            if it.kind == "R"
        )
    )
    if isinstance(first, IntImm):
        return SeqStmt((init, body)) if first.value else body
    return SeqStmt((IfThenElse(first, init), body))


class Simplify(Rewriter):
    """Simplifies every expression of a statement under the ranges of the loops around it."""

    def __init__(self, analyzer: Analyzer | None = None):
        self.analyzer = analyzer or Analyzer()

    def __call__(self, node: Any) -> Any:
        return self.analyzer.simplify(node) if isinstance(node, PrimExpr) else super().__call__(node)

    def rewrite_Buffer(self, node: Buffer) -> Buffer:
        return node

    def rewrite_For(self, node: For) -> Stmt:
        extent = self(node.extent)
        self.analyzer.bind(node.var, extent)
        body = self(node.body)
        return node if extent is node.extent and body is node.body else replace(node, extent=extent, body=body)

    def rewrite_Block(self, node: Block) -> Block:
        for it in node.iter_vars:
            self.analyzer.bind(it.var, it.extent)
        return self.rewrite_children(node)

    def rewrite_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self(node.condition)
        if isinstance(condition, IntImm):
            chosen = node.then_case if condition.value else node.else_case
            return self(chosen) if chosen is not None else SeqStmt(())
        return replace(node, condition=condition, then_case=self(node.then_case), else_case=self(node.else_case))


# -- placing intermediate buffers ---------------------------------------------------------------------------------


def _place(body: Stmt, buffer: Buffer) -> Stmt:
    """Allocate a buffer around the smallest statement that has all its accesses, in the size that is live there."""
    if not _touches(body, buffer):
        return body
    if isinstance(body, For) and not _touches(body.extent, buffer):
        return replace(body, body=_place(body.body, buffer))
    if isinstance(body, SeqStmt):
        inside = [s for s in body.stmts if _touches(s, buffer)]
        if len(inside) == 1:
            return SeqStmt(tuple(_place(s, buffer) if s is inside[0] else s for s in body.stmts))
    if isinstance(body, IfThenElse) and body.else_case is None and not _touches(body.condition, buffer):
        return replace(body, then_case=_place(body.then_case, buffer))
    if isinstance(body, Allocate):
        return replace(body, body=_place(body.body, buffer))
    return _allocate(body, buffer)


def _touches(node: object, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in walk(node))


def _allocate(body: Stmt, buffer: Buffer) -> Stmt:
    box = _live_box(body, buffer)
    if box is None:
        return Allocate(buffer, body)
    compact = replace(buffer, shape=tuple(r.extent for r in box))
    return Allocate(compact, _Shift(buffer, compact, [r.min for r in box])(body))


def _live_box(body: Stmt, buffer: Buffer) -> list[Range] | None:
    """The box of ``buffer`` accessed inside ``body``; None when it is not known or not smaller than the buffer."""
    found: list[list[Range]] = []
    analyzer = Analyzer()

    def visit(node: object, inner: dict[Var, PrimExpr]) -> bool:
        if isinstance(node, For):
            analyzer.bind(node.var, node.extent)
            inner = {**inner, node.var: node.extent}
            return visit(node.body, inner)
        if isinstance(node, Call) and node.op == "address_of":
            return _address(node, buffer, inner, analyzer, found)
        if isinstance(node, BufferLoad | BufferStore) and node.buffer is buffer:
            ranges = [span(i, inner, analyzer) for i in node.indices]
            if any(r is None for r in ranges):
                return False
            found.append(ranges)  # type: ignore[arg-type]
        return all(visit(child, inner) for child in _parts(node))

    if not visit(body, {}):
        return None
    return _cover(found, analyzer)


def _address(
    call: Call, buffer: Buffer, inner: dict[Var, PrimExpr], analyzer: Analyzer, found: list[list[Range]]
) -> bool:
    """An instruction's operand: the box that starts at the address, of the extents that follow it."""
    load, *extents = call.args
    if not isinstance(load, BufferLoad) or load.buffer is not buffer:
        return True
    box = []
    for index, extent in zip(load.indices, extents, strict=True):
        start = span(index, inner, analyzer)
        if start is None:
            return False
        box.append(Range(start.min, analyzer.simplify(start.extent + extent - 1)))
    found.append(box)
    return True


def _parts(node: object) -> Sequence[object]:
    if isinstance(node, Buffer | Var | str | int | float) or node is None:
        return ()
    if isinstance(node, tuple | list):
        return node
    fields = getattr(node, "__dataclass_fields__", {})
    return [getattr(node, name) for name in fields if name not in ("buffer", "annotations")]


def _cover(found: list[list[Range]], analyzer: Analyzer) -> list[Range] | None:
    result = []
    for axis in range(len(found[0])):
        low = found[0][axis].min
        extent = found[0][axis].extent
        for ranges in found[1:]:
            if not analyzer.prove_equal(ranges[axis].min, low):
                return None
            if analyzer.prove(extent <= ranges[axis].extent):
                extent = ranges[axis].extent
            elif not analyzer.prove(ranges[axis].extent <= extent):
                return None
        result.append(Range(low, extent))
    return result


class _Shift(Rewriter):
    def __init__(self, old: Buffer, new: Buffer, origin: Sequence[PrimExpr]):
        self.old, self.new, self.origin = old, new, origin
        self.analyzer = Analyzer()

    def rewrite_For(self, node: For) -> For:
        self.analyzer.bind(node.var, node.extent)
        return self.rewrite_children(node)

    def _indices(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(self.analyzer.simplify(i - o) for i, o in zip(indices, self.origin, strict=True))

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        inner = self(node.indices)
        if node.buffer is self.old:
            return BufferLoad(self.new, self._indices(inner))
        return node if inner is node.indices else BufferLoad(node.buffer, inner)

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        value, inner = self(node.value), self(node.indices)
        if node.buffer is self.old:
            return BufferStore(self.new, value, self._indices(inner))
        return BufferStore(node.buffer, value, inner)
