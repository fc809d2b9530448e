"""Which parts of buffers a statement reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.expr import IntImm, PrimExpr, Var
from ..ir.simplify import Analyzer, key
from ..ir.visitor import substitute, walk
from .nodes import Allocate, Block, BlockRealize, Buffer, BufferLoad, BufferRegion, BufferStore, For, IterVar, Range, Stmt


def accesses(stmt: object) -> tuple[list[BufferLoad], list[BufferStore]]:
    """All loads and stores inside, in order of appearance."""
    loads, stores = [], []
    for node in walk(stmt):
        if isinstance(node, BufferLoad):
            loads.append(node)
        elif isinstance(node, BufferStore):
            stores.append(node)
    return loads, stores


def point_region(buffer: Buffer, indices: Sequence[PrimExpr]) -> BufferRegion:
    """The region of one element."""
    return BufferRegion(buffer, tuple(Range(i, IntImm(1)) for i in indices))


def inner_extents(stmt: object) -> dict[Var, PrimExpr]:
    """Extents of the loops and of the block variables inside a statement."""
    extents: dict[Var, PrimExpr] = {}
    for node in walk(stmt):
        if isinstance(node, For | IterVar):
            extents[node.var] = node.extent
    return extents


def span(index: PrimExpr, inner: dict[Var, PrimExpr], analyzer: Analyzer) -> Range | None:
    """The range that an index covers while ``inner`` variables run; None when it is not affine in them."""
    form = analyzer.linear(index)
    inner_ids = {id(v): extent for v, extent in inner.items()}
    low, extent = index, IntImm(1)
    widened: PrimExpr = extent
    zero = {}
    for atom, coefficient in form.terms.values():
        if isinstance(atom, Var) and id(atom) in inner_ids:
            if coefficient < 0:
                return None
            zero[atom] = IntImm(0)
            widened = widened + (inner_ids[id(atom)] - 1) * coefficient
        elif any(isinstance(n, Var) and id(n) in inner_ids for n in walk(atom)):
            return None
    return Range(analyzer.simplify(substitute(low, zero)), analyzer.simplify(widened))


def infer_regions(
    body: Stmt, iter_vars: Iterable[IterVar] = ()
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Reads and writes of a block's body. A buffer read at several places gets one region for each distinct place;

    indices that depend on inner loops are widened to the range that they cover, or to the whole axis.
    A read of the very element that is written (the accumulator of a reduction) is not listed as a read.
    """
    loads, stores = accesses(body)
    inner = inner_extents(body)
    analyzer = Analyzer({v: e for v, e in inner.items()})
    for it in iter_vars:
        analyzer.bind(it.var, it.extent)
    local = {id(b) for n in walk(body) if isinstance(n, Block) for b in n.alloc_buffers}
    local |= {id(n.buffer) for n in walk(body) if isinstance(n, Allocate)}
    writes = _regions([(s.buffer, s.indices) for s in stores], inner, analyzer, local)
    written = {(id(s.buffer), key(s.indices)) for s in stores}
    reads = [(ld.buffer, ld.indices) for ld in loads if (id(ld.buffer), key(ld.indices)) not in written]
    return _regions(reads, inner, analyzer, local), writes


def _regions(
    places: list[tuple[Buffer, tuple[PrimExpr, ...]]], inner: dict[Var, PrimExpr], analyzer: Analyzer, local: set[int]
) -> tuple[BufferRegion, ...]:
    result: dict[object, BufferRegion] = {}
    for buffer, indices in places:
        if id(buffer) in local:
            continue
        ranges = []
        for index, size in zip(indices, buffer.shape, strict=True):
            data_dependent = any(isinstance(n, BufferLoad) for n in walk(index))
            found = None if data_dependent else (span(index, inner, analyzer) if inner else Range(index, IntImm(1)))
            ranges.append(found or Range(IntImm(0), size))
        region = BufferRegion(buffer, tuple(ranges))
        identity = (id(buffer), tuple((key(r.min), key(r.extent)) for r in region.region))
        result.setdefault(identity, region)
    return tuple(result.values())


def contains_block(stmt: Stmt) -> bool:
    return any(isinstance(n, BlockRealize) for n in walk(stmt))
