"""Classify tensor functions by the attribute ``op_pattern``, which fusion reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.expr import BinaryOp, PrimExpr, Var, is_const, without_casts
from ..ir.module import IRModule
from ..ir.visitor import nodes_of, walk
from ..relax import nodes as rx
from ..relax.dataflow import tir_call
from ..tir import nodes as tir
from .base import Pass

ELEMENTWISE, BROADCAST, INJECTIVE = "elementwise", "broadcast", "injective"
REDUCTION, MATMUL, OPAQUE = "reduction", "matmul", "opaque"
# Each output element is computed from single input elements; ordered from the most to the least regular access.
INJECTIVE_PATTERNS = (ELEMENTWISE, BROADCAST, INJECTIVE)


@dataclass(frozen=True)
class AnnotatePatterns(Pass):
    """Set the attribute ``op_pattern`` of tensor functions that have none.

    ``elementwise``: reads every input at the output's own index; ``broadcast``: at a subset of its axes, in order;
    ``injective``: at any index computed from the output's; ``matmul``: one sum of products of two inputs indexed by
    different output axes; ``reduction``: other reductions, also in several blocks such as a softmax; ``opaque``:
    anything else, including functions that are scheduled or called in place.
    """

    name = "annotate-patterns"

    def run(self, mod: IRModule) -> IRModule:
        in_place = _called_in_place(mod)
        changes = {}
        for name, func in mod.of_type(tir.PrimFunc).items():
            if name in in_place:
                changes[name] = func.with_attr("op_pattern", OPAQUE)
            elif "op_pattern" not in func.attrs:
                changes[name] = func.with_attr("op_pattern", op_pattern(func))
        return mod.updated(changes)


def _called_in_place(mod: IRModule) -> set[str]:
    calls = (
        tir_call(binding.value, "call_tir_inplace")
        for func in mod.of_type(rx.Function).values()
        for binding in func.bindings
    )
    return {call.callee for call in calls if call is not None}


def op_pattern(func: tir.PrimFunc) -> str:
    """The pattern of an unscheduled tensor function."""
    if func.attrs.get("tir.is_scheduled") or not tir.is_root(func.body):
        return OPAQUE
    blocks = _plain_blocks(func.body.block.body)  # type: ignore[attr-defined]
    if not blocks:
        return OPAQUE
    return _combine([_block_pattern(block) for block in blocks])


def _combine(patterns: Sequence[str]) -> str:
    reducing = [p for p in patterns if p not in INJECTIVE_PATTERNS]
    if not reducing:
        return max(patterns, key=INJECTIVE_PATTERNS.index)
    if OPAQUE in reducing or (MATMUL in reducing and len(reducing) > 1):
        return OPAQUE
    return reducing[0]


def _plain_blocks(stmt: tir.Stmt) -> list[tir.Block] | None:
    """The blocks in loop nests of serial loops, in order; None when there are other statements."""
    if isinstance(stmt, tir.For):
        return _plain_blocks(stmt.body) if stmt.kind == tir.SERIAL else None
    if isinstance(stmt, tir.BlockRealize):
        return [stmt.block] if is_const(stmt.predicate, 1) else None
    if not isinstance(stmt, tir.SeqStmt):
        return None
    found: list[tir.Block] = []
    for part in stmt.stmts:
        blocks = _plain_blocks(part)
        if blocks is None:
            return None
        found += blocks
    return found


def _block_pattern(block: tir.Block) -> str:
    store = block.body
    if not isinstance(store, tir.BufferStore) or block.alloc_buffers:
        return OPAQUE
    spatial = [it for it in block.iter_vars if it.kind == "S"]
    if len(store.indices) != len(spatial) or any(i is not s.var for i, s in zip(store.indices, spatial, strict=True)):
        return OPAQUE
    if len(spatial) < len(block.iter_vars):
        return MATMUL if _is_matmul(block, store) else REDUCTION
    loads = nodes_of(store.value, tir.BufferLoad)
    if any(load.buffer is store.buffer for load in loads):
        return OPAQUE
    return max((_access(load, spatial) for load in loads), key=INJECTIVE_PATTERNS.index, default=ELEMENTWISE)


def _access(load: tir.BufferLoad, spatial: Sequence[tir.IterVar]) -> str:
    """The access pattern of a load, from its index and the index of the computed element."""
    if len(load.indices) == len(spatial) and all(map(_same_place, load.indices, spatial)):
        return ELEMENTWISE
    remaining = iter(spatial)
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        if is_const(index, 0) and is_const(size, 1):
            continue
        if not isinstance(index, Var) or not any(axis.var is index for axis in remaining):
            return INJECTIVE
    return BROADCAST


def _same_place(index: PrimExpr, axis: tir.IterVar) -> bool:
    return index is axis.var or (is_const(index, 0) and is_const(axis.extent, 1))


def _is_matmul(block: tir.Block, store: tir.BufferStore) -> bool:
    """Whether a block computes ``C[s] = C[s] + A[…] * B[…]`` from zero, with A and B indexed by different axes of C."""
    starts_at_zero = isinstance(block.init, tir.BufferStore) and is_const(block.init.value, 0)
    value = store.value
    if not starts_at_zero or not isinstance(value, BinaryOp) or value.op != "+":
        return False
    accumulator, product = value.a, value.b
    if not isinstance(accumulator, tir.BufferLoad) or accumulator.buffer is not store.buffer:
        return False
    if not isinstance(product, BinaryOp) or product.op != "*":
        return False
    sides = [without_casts(product.a), without_casts(product.b)]
    axes = [_axes_read(block, side) for side in sides if isinstance(side, tir.BufferLoad)]
    return len(axes) == 2 and axes[0] != axes[1]


def _axes_read(block: tir.Block, load: tir.BufferLoad) -> set[int]:
    spatial = {id(it.var) for it in block.iter_vars if it.kind == "S" and not is_const(it.extent, 1)}
    return {id(n) for n in walk(load.indices) if id(n) in spatial}
