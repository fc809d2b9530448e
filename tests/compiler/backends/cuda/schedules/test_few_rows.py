"""Products with few rows on GPUs: results of the kernels as loops, and what the machine code does for each weight."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mlc_compiler.backends.cuda.images import find_assembler, llvm_modules
from mlc_compiler.backends.cuda.launches import Kernel
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.expr import Call
from mlc_compiler.ir.visitor import walk
from mlc_compiler.sim import Counts, Memory, parse_ptx
from mlc_compiler.sim import run as simulate
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
    Case(8, 40, 384, "q4 NK", symbolic=False),
    Case(3, 21, 160, "q4 NK", symbolic=False, gated=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.weight} {c.rows}x{c.columns}x{c.depth}")
def test_products(case: Case) -> None:
    """Depths that a warp's steps divide, or not; columns beyond the last tile; two sums for a result."""
    _check(case)


def _simulated(case: Case) -> Counts:
    """The counts of the kernel in the simulator; asserts its results."""
    target = Target("cuda:sm_80")
    launches: dict[str, Kernel] = {}
    mod = lowered(case.function(), target)
    (text,) = assemble_modules(llvm_modules(mod, target, launches), target)
    ((name, kernel),) = launches.items()
    (launch,) = (n for n in walk(mod["main"]) if isinstance(n, Call) and n.op == "cuda.launch")
    grid = tuple(size.value for size in launch.args[1:4])  # type: ignore[attr-defined]
    arrays, expected = case.arrays()
    memory = Memory()
    out = np.full(expected.shape, np.nan, expected.dtype)
    addresses = [memory.allocate(np.frombuffer(a.tobytes() + bytes(-a.nbytes % 16), np.uint8)) for a in (*arrays, out)]
    counts = simulate(parse_ptx(text).kernels[name], grid, kernel.launch.block, addresses, memory)
    got = memory.view(addresses[-1], expected.dtype, expected.shape)
    tolerance = 4e-2 if case.dtype == "bfloat16" else 6e-3
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)
    return counts


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("weight", ["NK", "KN", "q4 NK", "q4 KN"])
def test_machine_code(weight: str, dtype: str) -> None:
    _simulated(Case(3, 40, 160, weight, dtype, symbolic=False))


@pytest.mark.parametrize("rows", range(1, 9))
def test_gated(rows: int) -> None:
    """Whole fragments of 8 columns, or a part of the last one; some blocks have fewer fragments."""
    _simulated(Case(rows, 24 + rows, 160, ("NK", "q4 NK", "KN", "q4 KN")[rows % 4], symbolic=False, gated=True))


def test_memory_accesses() -> None:
    """Each weight is read once, by few instructions; the activations by every block; no bank conflicts."""
    columns, depth = 32, 4096
    counts = _simulated(Case(1, columns, depth, "q4 NK", symbolic=False))
    codes = columns * depth // 2
    assert counts.distinct_bytes_read <= 1.03 * (codes + columns * depth // 32 * 2 + 2 * depth + 4 * columns)
    assert counts.bank_conflicts == 0
    by_opcode = counts.by_opcode
    moves, merged = by_opcode["mov"], by_opcode["and"]  # moves name halves of registers; ``and`` and ``or`` are one
    assert (counts.warp_instructions - moves - merged) / (codes / 512) <= 100


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
