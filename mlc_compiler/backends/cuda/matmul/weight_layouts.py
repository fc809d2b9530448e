"""The layouts of packed weights for matmuls."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import dtype as dt
from ....schedules.rule import constant_extent
from ....tir.index_map import IndexMap
from ....tir.nodes import Buffer, PrimFunc
from ....tir.schedule.layout import with_layout
from ..instructions.dequantize import Unpacking
from .division import LOAD_BYTES, SPAN_LANES

COLUMNS = 8
"""Columns that a warp reads together."""
PADDING = 32
"""A layout may need up to 1 / ``PADDING`` more memory."""

Layouts = tuple[tuple[Buffer, IndexMap], ...]


def lane_positions(unpacking: Unpacking) -> int:
    """The number of positions whose codes a lane loads at a time."""
    return LOAD_BYTES // dt.nbytes(unpacking.dtype) * unpacking.positions


def with_layouts(func: PrimFunc, layouts: Layouts) -> PrimFunc:
    """Rewrite a function for weights that are stored in these layouts."""
    for buffer, layout in layouts:
        func, _ = with_layout(func, buffer, layout)
    return func


def weight_layouts(func: PrimFunc, unpacking: Unpacking, positions: Mapping[Buffer, int], by_column: bool) -> Layouts:
    """The layouts in which a warp of ``FewRows`` reads contiguous memory: span by span, each of 8 columns.

    positions: codes per element of each buffer, which is [columns, elements] if ``by_column``, else transposed. A span
    has the positions that four lanes load; spans are padded. Empty if that needs much more memory, or if a buffer is
    not a weight: it would be packed in every call.
    """
    activations = {func.buffers[i] for i in func.attrs.get("activations", ())}
    span = SPAN_LANES * lane_positions(unpacking)
    if any(b in activations or b not in func.buffers or span % count for b, count in positions.items()):
        return ()
    sizes = [(b, span // count, [constant_extent(e) for e in b.shape]) for b, count in positions.items()]
    axis = int(by_column)
    for _, size, shape in sizes:
        columns, elements = shape[1 - axis], shape[axis]
        if columns is None or elements is None or columns % COLUMNS or -elements % size * PADDING > elements:
            return ()
    return tuple((b, _of_spans(size, by_column)) for b, size, _ in sizes)


def _of_spans(size: int, by_column: bool) -> IndexMap:
    """The layout [groups of columns, spans, columns, elements of a span], ``size`` elements per span."""
    if by_column:
        return IndexMap.from_func(lambda n, i: (n // COLUMNS, i // size, n % COLUMNS, i % size))
    return IndexMap.from_func(lambda i, n: (n // COLUMNS, i // size, n % COLUMNS, i % size))
