"""The column order of gated matmuls, in which the same thread computes both sums of a result.

Eight columns of the first half of the weight are followed by the eight of the second half that they are combined with,
and so on. A thread that has sums of a fragment of 8 columns (PTX ISA, "Matrix Fragments for mma.m16n8k16", and the
accumulators of wgmma) has the sums at the same positions of the next fragment.
"""

from __future__ import annotations

from ....ir.expr import BinaryOp, PrimExpr, is_const, minimum
from ....ir.simplify import simplify
from .tiles import MMA_COLUMNS

PAIR = 2 * MMA_COLUMNS
"""Columns of two fragments whose sums are combined."""


def interleaved_columns(results: int) -> int:
    """The number of columns of a gated matmul, padded to whole fragments."""
    return -(-results // MMA_COLUMNS) * PAIR


def column_of(interleaved: PrimExpr, results: int) -> PrimExpr:
    """The column of the weight for an interleaved column; any valid column beyond the last result."""
    pair, fragment, place = (  # without the multiples of whole pairs in an index, addresses differ by constants
        simplify(part) for part in (interleaved // PAIR, interleaved // MMA_COLUMNS % 2, interleaved % MMA_COLUMNS)
    )
    column = pair * MMA_COLUMNS + place
    inside = minimum(column, results - 1) if results % MMA_COLUMNS else column
    return inside + fragment * results


def halves(index: PrimExpr, distance: int) -> tuple[PrimExpr, int]:
    """``(c, 0)`` for an index c, ``(c, 1)`` for ``c + distance``."""
    if isinstance(index, BinaryOp) and index.op == "+":
        for column, constant in ((index.a, index.b), (index.b, index.a)):
            if is_const(constant, distance):
                return column, 1
    return index, 0
