"""PeelGuards, VectorizeShortLoops and InterleaveReductions keep the results of the golden cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import Schedule, build, emit_asm, te
from mlc_compiler.backends.cpu.passes.interleave_reductions import InterleaveReductions
from mlc_compiler.backends.cpu.passes.peel_guards import PeelGuards
from mlc_compiler.backends.cpu.passes.vectorize_short_loops import VectorizeShortLoops
from mlc_compiler.interp import run_prim_func
from mlc_compiler.passes.base import Pass
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.verifier import verify

HERE, AVX2 = Path(__file__).parent, Target("cpu:x86-64-v3")
PASSES: dict[str, Pass] = {
    "peel_guards": PeelGuards(),
    "vectorize_short_loops": VectorizeShortLoops(AVX2),
    "interleave_reductions": InterleaveReductions(AVX2),
}
CASES = [(p, case) for p in PASSES for case in sorted((HERE / p).glob("*.py"))]


def integers(func: PrimFunc) -> list[np.ndarray]:
    """Arrays of integers that are in range as indices of eight elements."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 8, [int(s.value) for s in b.shape]).astype(b.dtype) for b in func.buffers]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{p}/{c.stem}" for p, c in CASES])
def test_golden_cases_compute_the_same(name: str, case: Path) -> None:
    step = PASSES[name]
    before = parse(case.read_text().partition("\n# ----\n")[0])
    after = step.run(before)
    verify(after)
    for name, func in before.of_type(PrimFunc).items():
        expected, got = integers(func), integers(func)
        run_prim_func(func, *expected)
        run_prim_func(after[name], *got)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def narrow_columns(rows: int, depth: int, columns: int) -> PrimFunc:
    """A matmul scheduled in tiles of four columns: LLVM does not vectorize such loops."""
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis(depth, "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = Schedule(te.create_prim_func([a, b, c]))
    s.cache_write("c", "local")
    _, j, k_loop = s.get_loops("c")
    outer, inner = s.split(j, [None, 4])
    s.reorder(outer, k_loop, inner)
    s.reverse_compute_at("c_local", outer)
    s.decompose_reduction("c", k_loop)
    return s.func


def test_narrow_columns_are_lanes_in_the_machine_code() -> None:
    func = narrow_columns(16, 64, 32)
    assembly = emit_asm(func, "cpu:x86-64-v3")
    assert "vfmadd" in assembly and "gather" not in assembly
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 64), np.float32), rng.standard_normal((64, 32), np.float32)
    c = np.zeros((16, 32), np.float32)
    build(func)["main"](a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)
