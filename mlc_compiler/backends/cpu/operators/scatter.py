"""Writing elements at computed indices, for CPUs."""

from __future__ import annotations

from ....ir import dtype as dt
from ....relax.ops.scatter import scattered_lines
from ....tir import te

LINE_BITS = 512  # of a cache line


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, axis: int = 0, reduction: str = "update"
) -> te.Tensor:
    """The operator ``scatter_elements``, in tiles of columns that fill a cache line."""
    return scattered_lines(data, indices, updates, axis, reduction, LINE_BITS // dt.bits(data.dtype))
