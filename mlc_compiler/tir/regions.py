"""Inference of the buffer regions that a statement reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from ..ir.expr import BinaryOp, IntImm, Let, PrimExpr, Var, const
from ..ir.linear import additive
from ..ir.simplify import Analyzer, Linear, key
from ..ir.visitor import Rewriter, nodes_of, substitute
from .nodes import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    Range,
    Stmt,
    seq,
)

LARGEST = 1 << 62  # upper bound of any loop extent


def accesses(stmt: object) -> tuple[list[BufferLoad], list[BufferStore]]:
    """All buffer loads and stores in a statement, in order of appearance."""
    return nodes_of(stmt, BufferLoad), nodes_of(stmt, BufferStore)


def inner_extents(stmt: object) -> dict[Var, PrimExpr]:
    """Extents of the loops and of the block variables inside a statement."""
    nodes: list[For | IterVar] = nodes_of(stmt, For, IterVar)
    return {node.var: node.extent for node in nodes}


def span(index: PrimExpr, inner: dict[Var, PrimExpr], analyzer: Analyzer) -> Range | None:
    """The range of an index while the ``inner`` variables run; None unless it is affine in them and their digits.

    Digits of a variable are quotients and remainders by constants, such as ``v // 8`` and ``v % 8``.
    """
    inner_ids = {id(v): extent for v, extent in inner.items()}
    form = analyzer.linear(index)
    if any(_is_nonlinear(atom, inner_ids) for atom, _ in form.terms.values()):
        form = additive(analyzer.simplify(index))
        if not _are_digits(form, inner_ids):
            return None
    widened = const(1, index.dtype)
    at_minimum: dict[PrimExpr, PrimExpr] = {}
    for k, (atom, coefficient) in list(form.terms.items()):
        if isinstance(atom, Var) and id(atom) in inner_ids:
            last = inner_ids[id(atom)] - 1
            at_minimum[atom] = const(0, atom.dtype) if coefficient > 0 else last
            widened = widened + last * abs(coefficient)
        elif _is_nonlinear(atom, inner_ids):
            low, high = _bounds(atom, analyzer)
            if low is None or high is None:
                return None
            widened = widened + (high - low) * abs(coefficient)
            form = form.without(k).add(Linear(low if coefficient > 0 else high), coefficient)
            index = analyzer.build(form, index.dtype)
    return Range(analyzer.simplify(substitute(index, at_minimum)), analyzer.simplify(widened))


def _is_nonlinear(atom: PrimExpr, inner: Mapping[int, PrimExpr]) -> bool:
    return not isinstance(atom, Var) and any(id(var) in inner for var in nodes_of(atom, Var))


def _are_digits(form: Linear, inner: Mapping[int, PrimExpr]) -> bool:
    """Whether all terms with inner variables are distinct digits of them, so that their values are independent."""
    digits: dict[int, list[tuple[int, int]]] = {}
    for atom, _ in form.terms.values():
        if _is_nonlinear(atom, inner) or id(atom) in inner:
            found = _digit(atom)
            if found is None:
                return False
            digits.setdefault(id(found[0]), []).append(found[1:])
    ordered = (sorted(found) for found in digits.values())
    return all(a[1] <= b[0] for found in ordered for a, b in pairwise(found))


def _digit(atom: PrimExpr) -> tuple[PrimExpr, int, int] | None:
    """Match ``v // a % b``: the variable, ``a`` and ``a * b``; None for another expression."""
    if isinstance(atom, Var):
        return atom, 1, LARGEST
    if not (isinstance(atom, BinaryOp) and atom.op in ("//", "%") and isinstance(atom.b, IntImm) and atom.b.value > 0):
        return None
    inside = _digit(atom.a)
    if inside is None:
        return None
    var, low, high = inside
    return (var, low * atom.b.value, high) if atom.op == "//" else (var, low, min(high, low * atom.b.value))


def _bounds(atom: PrimExpr, analyzer: Analyzer) -> tuple[int | None, int | None]:
    """Constant bounds of an atom; a remainder is bounded by its divisor."""
    if isinstance(atom, BinaryOp) and atom.op == "%" and isinstance(atom.b, IntImm) and atom.b.value > 0:
        return 0, atom.b.value - 1
    return analyzer.bounds_of(atom)


class _OpenBlocks(Rewriter):
    """Replaces each block by its statements, with the bound values in place of its variables."""

    def rewrite_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = node.block
        parts = [self(part) for part in (block.init, block.body) if part is not None]
        values = {it.var: value for it, value in zip(block.iter_vars, node.iter_values, strict=True)}
        return substitute(seq(*parts), values)


def infer_regions(
    body: object, iter_vars: Iterable[IterVar] = (), reads_back: bool = False, allocated: Iterable[Buffer] = ()
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Infer the read and write regions of a block body, a statement or a tuple of statements.

    A buffer read at several indices gets one region for each; indices that depend on inner loops are widened to the
    range that they cover, or to the whole axis.
    A read of the element that is written (the accumulator of a reduction) is included only with ``reads_back``.
    ``allocated``: buffers of the block itself, which have no region.
    """
    flat = _OpenBlocks()(body)
    loads, stores = accesses(flat)
    inner = inner_extents(flat)
    analyzer = Analyzer({v: e for v, e in inner.items()})
    for it in iter_vars:
        analyzer.bind(it.var, it.extent)
    local = {id(b) for n in nodes_of(body, Block) for b in n.alloc_buffers} | {id(b) for b in allocated}
    local |= {id(n.buffer) for n in nodes_of(body, Allocate)}
    defining: list[For | LetStmt | Let] = nodes_of(flat, For, LetStmt, Let)
    local |= {id(n.var) for n in defining}
    writes = _regions([(s.buffer, s.indices) for s in stores], inner, analyzer, local)
    written = {(id(s.buffer), key(s.indices)) for s in stores}
    kept = [ld for ld in loads if reads_back or (id(ld.buffer), key(ld.indices)) not in written]
    reads = [(ld.buffer, ld.indices) for ld in kept]
    return _regions(reads, inner, analyzer, local), writes


def _regions(
    places: list[tuple[Buffer, tuple[PrimExpr, ...]]], inner: dict[Var, PrimExpr], analyzer: Analyzer, local: set[int]
) -> tuple[BufferRegion, ...]:
    """The regions of accesses; ``local``: ids of buffers and variables defined inside, which no region may mention."""
    result: dict[object, BufferRegion] = {}
    spans: dict[object, Range | None] = {}
    distinct = {(id(buffer), key(indices)): (buffer, indices) for buffer, indices in places if id(buffer) not in local}
    for buffer, indices in distinct.values():
        ranges = []
        for index, size in zip(indices, buffer.shape, strict=True):
            if (same := key(index)) not in spans:
                spans[same] = _known_span(index, inner, analyzer, local)
            ranges.append(spans[same] or Range(const(0, size.dtype), size))
        region = BufferRegion(buffer, tuple(ranges))
        identity = (id(buffer), tuple((key(r.min), key(r.extent)) for r in region.region))
        result.setdefault(identity, region)
    return tuple(result.values())


def _known_span(index: PrimExpr, inner: dict[Var, PrimExpr], analyzer: Analyzer, local: set[int]) -> Range | None:
    """``span``; None where it depends on stored values or on ``local`` variables."""
    found = span(index, inner, analyzer) if inner else Range(index, const(1, index.dtype))
    inside = nodes_of((found.min, found.extent), BufferLoad, Var) if found else ()
    return None if any(isinstance(n, BufferLoad) or id(n) in local for n in inside) else found
