"""Matmuls with few rows on GPUs: results of the kernels as loops, and the machine code for each weight format."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.backends.cuda.products import Case
from tests.compiler.backends.cuda.races import run
from tests.compiler.backends.cuda.scheduled import kernels
from tests.compiler.backends.cuda.schedules.few_rows import simulated


def _check(case: Case) -> None:
    arrays, expected = case.arrays()
    out = np.zeros_like(expected)
    got = run(kernels(case.function()), *arrays, out)[-1]
    tolerance = 4e-2 if case.dtype == "bfloat16" else 6e-3
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)


CASES = [
    Case(1, 16, 160, "NK", symbolic=False),
    Case(8, 40, 384, "q4 NK", symbolic=False),
    Case(3, 21, 160, "q4 NK", symbolic=False, gated=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.weight} {c.rows}x{c.columns}x{c.depth}")
def test_products(case: Case) -> None:
    """Depths that a warp's steps divide, or not; columns beyond the last tile; two sums for a result."""
    _check(case)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("weight", ["NK", "KN", "q4 NK", "q4 KN"])
def test_machine_code(weight: str, dtype: str) -> None:
    simulated(Case(3, 40, 160, weight, dtype, symbolic=False))


@pytest.mark.parametrize("rows", range(1, 9))
def test_gated(rows: int) -> None:
    """Whole fragments of 8 columns, or a part of the last one; some blocks have fewer fragments."""
    simulated(Case(rows, 24 + rows, 160, ("NK", "q4 NK", "KN", "q4 KN")[rows % 4], symbolic=False, gated=True))


def test_memory_accesses() -> None:
    """Each weight is read once, by few instructions; the activations by every block; no bank conflicts."""
    columns, depth = 32, 4096
    counts = simulated(Case(1, columns, depth, "q4 NK", symbolic=False), packs=True)
    codes = columns * depth // 2
    assert counts.distinct_bytes_read <= 1.03 * (codes + columns * depth // 32 * 2 + 2 * depth + 4 * columns)
    assert counts.bank_conflicts == 0
    by_opcode = counts.by_opcode
    moves, merged = by_opcode["mov"], by_opcode["and"]  # moves name halves of registers; ``and`` and ``or`` are one
    assert (counts.warp_instructions - moves - merged) / (codes / 512) <= 100
