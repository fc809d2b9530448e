"""Recognition of tensor functions that combine the two halves of a tensor, such as SwiGLU's gate and input."""

from __future__ import annotations

from ..ir.expr import IntImm, PrimExpr
from ..ir.simplify import Analyzer
from ..ir.visitor import nodes_of
from ..tir.nodes import Buffer, BufferLoad, BufferStore, PrimFunc


def reads_halves(func: PrimFunc, source: Buffer) -> bool:
    """Whether each element [..., c] of an injective function's results depends only on [..., c] and [..., c + half].

    Both are elements of ``source``, whose last axis has ``2 * half`` elements; both halves are read. Other tensors are
    read at the element's own index.
    """
    width = source.shape[-1] if source.shape else None
    if not isinstance(width, IntImm) or width.value % 2:
        return False
    half, halves = width.value // 2, set()
    for store in nodes_of(func.body, BufferStore):
        if not _is_equal(store.buffer.shape[-1:], (IntImm(half),)):
            return False
        for load in nodes_of(store.value, BufferLoad):
            at = [d for d in ((0, half) if load.buffer is source else (0,)) if _is_shifted(load, store, d)]
            if not at:
                return False
            halves |= set(at) if load.buffer is source else set()
    return len(halves) == 2


def _is_shifted(load: BufferLoad, store: BufferStore, distance: int) -> bool:
    """Whether a load has the indices of a store, with ``distance`` added to the last one."""
    if not store.indices:
        return False
    *lead, last = store.indices
    return _is_equal(load.indices, (*lead, last + distance))


def _is_equal(a: tuple[PrimExpr, ...], b: tuple[PrimExpr, ...]) -> bool:
    return len(a) == len(b) and all(Analyzer().prove_equal(x, y) for x, y in zip(a, b, strict=True))
