"""Writing elements at computed indices, for CPUs."""

from __future__ import annotations

from ....ir import dtype as dt
from ....relax.ops.scatter import scattered_lines, scattered_parts
from ....tir import te

LINE_BITS = 512  # of a cache line
LINES = 64  # a page, in which hardware prefetches: parts of rows that are copied at once


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, axis: int = 0, reduction: str = "update"
) -> te.Tensor:
    """The operator ``scatter_elements``, in tiles of columns that fill a cache line."""
    return scattered_lines(data, indices, updates, axis, reduction, LINE_BITS // dt.bits(data.dtype))


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str = "update") -> te.Tensor:
    """The operator ``scatter_nd``, in tiles of columns that fill several cache lines."""
    return scattered_parts(data, indices, updates, reduction, LINES * LINE_BITS // dt.bits(data.dtype))
