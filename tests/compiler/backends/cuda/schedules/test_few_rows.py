"""Products with few rows on GPUs: results of the kernels as loops, and what the machine code does for each weight."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mlc_compiler.backends.cuda.images import find_assembler, llvm_modules
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.products import Case, lowered
from tests.compiler.backends.cuda.races import run
from tests.compiler.backends.cuda.scheduled import kernels


def _check(case: Case) -> None:
    arrays, expected = case.arrays()
    out = np.zeros_like(expected)
    got = run(kernels(case.function()), *arrays, out)[-1]
    tolerance = 4e-2 if case.dtype == "bfloat16" else 6e-3
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)


CASES = [
    Case(1, 16, 160, "NK", symbolic=False),
    Case(3, 24, 128, "q4 NK", symbolic=False),
    Case(8, 70, 384, "q4 NK", symbolic=False),
    Case(2, 16, 96, "q4 KN", symbolic=False),
    Case(5, 32, 64, "KN", symbolic=False),
    Case(3, 32, 128, "q4 NK", "bfloat16", symbolic=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.weight} {c.rows}x{c.columns}x{c.depth}")
def test_products(case: Case) -> None:
    """Depths that a warp's steps divide, or not; columns beyond the last tile."""
    _check(case)


def _ptx(case: Case, target: Target) -> str:
    (text,) = assemble_modules(llvm_modules(lowered(case.function(), target), target, {}), target)
    assemble = find_assembler()
    assert assemble is not None
    (resources,) = assemble(text, target.cpu).resources.values()
    assert resources.stack_bytes == resources.spill_bytes == 0
    return text


MOVES = ("mov.b32", "cvt.u32.u16", "cvt.u64.u32", "mov.pred")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("columns", "depth"), [(4096, 4096), (28672, 4096), (4096, 14336)])
def test_instructions_for_512_bytes_of_codes(columns: int, depth: int, dtype: str) -> None:
    """At most 100 for a warp. Of moves, only those that make a pair are instructions; ``and`` and ``or`` become one."""
    text = _ptx(Case(1, columns, depth, "q4 NK", dtype, symbolic=False), Target("cuda:sm_90a"))
    loop = re.search(r"\$L__BB0_1:(.*)bra", text, re.S)
    assert loop is not None
    body = loop[1].rpartition("bra")[0] or loop[1]
    names = re.findall(r"^\t(?:@!?%p\d+ )?([a-z][\w.]*)", body, re.M)
    pairs = len(re.findall(r"mov\.b32 \t%r\d+, \{", body))
    count = sum(name not in MOVES for name in names) - names.count("and.b32") + pairs
    assert count / (body.count("mma.sync") / 4) <= 100
    assert "ld.global.nc.v4.b32" in body
    assert "cvt.rn" not in body
