"""Conversion of slices to buffer regions, as in ``T.reads(A[0:4, i])``."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.expr import BinaryOp, IntImm, PrimExpr, binary, const, is_const
from ..ir.simplify import key
from ..tir.nodes import Buffer, BufferLoad, BufferRegion, Range


def _extent(low: PrimExpr, high: PrimExpr) -> PrimExpr:
    """The extent of ``low:high``: ``extent`` itself where the slice is written ``low:low + extent``."""
    if is_const(low, 0):
        return high
    if isinstance(high, BinaryOp) and high.op == "+" and key(high.a) == key(low):
        return high.b
    return binary("-", high, low)


def index_or_range(low: PrimExpr | None, high: PrimExpr | None, size: PrimExpr | None) -> Range:
    """The range of a slice; missing bounds are 0 and ``size``, the buffer's size on that axis."""
    if high is None:
        if size is None:
            raise ValueError("more indices than the buffer has axes")
        high = size
    low = low if low is not None else const(0, high.dtype)
    return Range(low, _extent(low, high))


def region_from_indices(buffer: Buffer, items: Sequence[PrimExpr | Range]) -> BufferRegion:
    """Build a region from indices and ranges; an index is a range of extent 1."""
    return BufferRegion(buffer, tuple(i if isinstance(i, Range) else Range(i, IntImm(1, i.dtype)) for i in items))


def as_region(access: BufferLoad | BufferRegion) -> BufferRegion:
    """Convert an element to the region of that element; return a region unchanged."""
    return region_from_indices(access.buffer, access.indices) if isinstance(access, BufferLoad) else access
