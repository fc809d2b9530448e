"""Workspace layout: offsets of values from their lifetimes.

Values of constant or bounded size share one range, packed by first fit. Values of symbolic size follow in blocks that
are reused for later values of the same size; the offset of such a block is an expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr, const
from ..ir.simplify import Analyzer, key, simplify
from ..ir.visitor import free_vars
from ..relax.nodes import Expr, TensorStructInfo

ALIGNMENT = 64


@dataclass(eq=False)
class Storage:
    """Memory of one value: a parameter, a constant, an output, or a range of the workspace or of zeroed memory.

    first, last: indices of the first and last call that use it. offset, nbytes: its range in the workspace, ints or
    expressions in the call's symbolic sizes.
    """

    kind: str
    info: TensorStructInfo
    first: int = 0
    last: int = 0
    offset: int | PrimExpr = 0
    nbytes: int | PrimExpr = 0
    expr: Expr | None = None


def lay_out(storages: Iterable[Storage], bounds: Mapping[str, int]) -> int | PrimExpr:
    """Assign offset and size in the workspace to every storage; returns the size of the workspace in bytes."""
    inside = [s for s in storages if s.kind == "workspace"]
    sizes: dict[object, int | PrimExpr] = {}
    for storage in inside:
        identity = key(storage.info.shape), storage.info.dtype
        if identity not in sizes:
            size = simplify(_nbytes(storage.info, bounds))
            sizes[identity] = size.value if isinstance(size, IntImm) else size
        storage.nbytes = sizes[identity]
    total = _first_fit([(s, s.nbytes) for s in inside if isinstance(s.nbytes, int)])
    return _append_blocks([s for s in inside if not isinstance(s.nbytes, int)], total)


def _nbytes(info: TensorStructInfo, bounds: Mapping[str, int]) -> PrimExpr:
    """The number of bytes of a tensor, rounded up to ``ALIGNMENT``; bounded sizes are replaced by their bound."""
    sizes = [_upper_bound(size, bounds) for size in info.shape or ()]
    count: PrimExpr = const(dt.nbytes(info.dtype), "int64")
    for size in sorted(sizes, key=_rank):
        count = count * size
    return (count + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def _upper_bound(size: PrimExpr, bounds: Mapping[str, int]) -> PrimExpr:
    """The upper bound of a size; the size itself when it is unbounded."""
    analyzer = Analyzer({v: bounds[v.name] + 1 for v in free_vars(size) if v.name in bounds})
    _, high = analyzer.bounds(analyzer.linear(size))
    return size if high is None else const(high, size.dtype)


def _rank(size: PrimExpr) -> tuple[str, ...]:
    """Sort key: numbers first, then names, so that equal products become equal expressions."""
    return tuple(v.name for v in free_vars(size))


def _first_fit(sizes: Sequence[tuple[Storage, int]]) -> int:
    """Place values, in order of first use, at the lowest offset free in their lifetime; returns the bytes used."""
    alive: list[tuple[Storage, int, int]] = []
    total = 0
    for storage, size in sizes:
        alive = [other for other in alive if other[0].last >= storage.first]
        begin = _lowest_gap([(low, high) for _, low, high in alive], size)
        storage.offset, end = begin, begin + size
        alive.append((storage, begin, end))
        total = max(total, end)
    return total


def _lowest_gap(ranges: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset at which ``size`` bytes overlap none of the ranges."""
    offset = 0
    for begin, end in sorted(ranges):
        if offset + size <= begin:
            break
        offset = max(offset, end)
    return offset


def _append_blocks(storages: Sequence[Storage], start: int) -> int | PrimExpr:
    """Place values of symbolic size after ``start``; values of equal size with disjoint lifetimes share a block."""
    blocks: dict[object, list[Storage]] = {}
    end: PrimExpr = const(start, "int64")
    for storage in storages:
        of_this_size = blocks.setdefault(key(storage.nbytes), [])
        free = next((i for i, last in enumerate(of_this_size) if last.last < storage.first), None)
        if free is not None:
            storage.offset = of_this_size[free].offset
            of_this_size[free] = storage
        else:
            storage.offset = end
            of_this_size.append(storage)
            end = simplify(end + storage.nbytes)
    return end if storages else start
