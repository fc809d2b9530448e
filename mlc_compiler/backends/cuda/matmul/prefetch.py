"""Prefetch of weights to the L2 cache while the previous kernel still runs.

A kernel that may begin early prefetches before it waits (``griddepcontrol.wait``), as no kernel writes weights. Loads
to registers instead could hold only one step of a block; a prefetch needs no registers and covers all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import Call, IntImm, PrimExpr, Var, cast, const, minimum
from ....ir.simplify import simplify
from ....ir.visitor import substitute, uses
from ....tir.nodes import BufferLoad, Evaluate, IfThenElse, Stmt, seq
from ..emitter import WAIT
from ..machine import Gpu
from .division import BLOCKS_PER_MULTIPROCESSOR, Division
from .weight_layouts import COLUMNS

PREFETCH = "intrinsic.cuda.prefetch"
UNIT = 16  # bytes: addresses and sizes are multiples of it
Element = Callable[[PrimExpr, PrimExpr], PrimExpr]
"""(column, position) -> the element that a matmul reads."""


Prefetches = Callable[[Var, PrimExpr, PrimExpr], Stmt]
"""(block, part of the depth, thread of the block) -> the statements of that thread."""


@dataclass(frozen=True)
class _Rows:
    """A buffer with a row for one or more columns. part_bytes: bytes of a row per part of the depth but the last."""

    element: Element
    part_bytes: int
    row_bytes: int


def prefetches(
    elements: Sequence[Element], part_positions: int, d: Division, columns: int, gpu: Gpu, stored: int | None
) -> Prefetches | None:
    """Prefetches of the weights that a block reads, followed by the wait.

    stored: positions in memory of weights with ``weight_layouts``, in which ``COLUMNS`` columns are one row.

    None if the GPU has no such instruction, or if the weights of a column are not rows of whole vectors. A block
    prefetches at most its share of half of the L2 cache.
    """
    found = [rows for rows in (_rows(element, part_positions, stored) for element in elements) if rows is not None]
    if not gpu.bulk_copies or not found:
        return None
    together = COLUMNS if stored else 1
    share = gpu.l2_bytes * together // (2 * BLOCKS_PER_MULTIPROCESSOR * gpu.multiprocessors * d.columns)
    total = max(share, sum(rows.part_bytes for rows in found))

    def body(block: Var, part: PrimExpr, thread: PrimExpr) -> Stmt:
        column = minimum(block * d.columns + cast("int64", thread) * together, columns - together)
        calls = []
        for rows in found:
            first = rows.element(column, cast("int64", part) * part_positions)
            rest = const(rows.row_bytes, "int32") - part * rows.part_bytes
            nbytes = simplify(minimum(rest, rows.part_bytes * share // total // UNIT * UNIT))
            calls.append(Call(PREFETCH, (Call("address_of", (first,), "handle"), nbytes), "handle"))
        started = IfThenElse(thread < d.columns // together, seq(*map(Evaluate, calls)))
        return seq(started, Evaluate(Call(WAIT, (), "handle")))

    return body


def _rows(element: Element, part_positions: int, stored: int | None) -> _Rows | None:
    """The rows of the buffer that ``element`` loads; None if a part of a row is not a whole number of vectors."""
    column, position = Var("column"), Var("position")
    load = element(column, position)
    if not isinstance(load, BufferLoad):
        return None
    along = load.indices[-1] if stored is None else next(i for i in load.indices if uses(i, position))
    if any(uses(i, position) for i in load.indices if i is not along) or uses(along, column):
        return None

    def start(positions: int) -> int:
        index = simplify(substitute(along, {position: const(positions, "int64")}))
        return index.value if isinstance(index, IntImm) else -1

    first, second, third = (start(n * part_positions) for n in range(3))
    width = simplify(load.buffer.shape[-1]) if stored is None else IntImm(start(stored))
    if not isinstance(width, IntImm) or not first == 0 < second or third != 2 * second:
        return None
    item = dt.nbytes(load.buffer.dtype) * (COLUMNS if stored else 1)
    rows = _Rows(element, second * item, width.value * item)
    return rows if rows.part_bytes % UNIT == rows.row_bytes % UNIT == 0 else None
