"""Matmuls with few rows whose reduction is split over blocks; weights are prefetched before a kernel waits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.machine import Gpu
from mlc_compiler.backends.cuda.matmul.division import Division
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.target import Target
from mlc_runtime.library import Library
from tests.compiler.backends.cuda.as_loops import build_as_loops
from tests.compiler.backends.cuda.products import Case, lowered, simulated

HOPPER = Gpu.of(Target("cuda:sm_90a"))  # 132 multiprocessors


def small(arch: str) -> Target:
    """A GPU with few multiprocessors, which small matmuls fill."""
    return Target({"kind": "cuda", "arch": [arch], "multiprocessors": 16})


@pytest.mark.parametrize(
    ("columns", "depth", "span", "prologue", "expected"),
    [
        (6144, 4096, 128, True, Division(4, 4, 8, 1)),  # queries, keys and values of 8 B parameters, 4 bits
        (4096, 4096, 128, False, Division(1, 1, 8, 4)),
        (28672, 4096, 128, True, Division(4, 1, 8, 4)),
        (576, 7168, 32, False, Division(1, 7, 8, 4)),  # 16 bits
        (1024, 28672, 128, False, Division(1, 6, 8, 5)),
        (576, 576, 128, False, Division(1, 1, 4, 2)),  # as small as the partial sums
        (960, 576, 128, True, Division(1, 1, 4, 2)),
        (2560, 2048, 128, True, Division(1, 1, 8, 2)),
        (2048, 5632, 128, False, Division(1, 1, 8, 6)),
    ],
)
def test_blocks_fill_the_gpu(columns: int, depth: int, span: int, prologue: bool, expected: Division) -> None:
    assert Division.of(columns, -(-depth // span), HOPPER, prologue=prologue) == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40_000), st.integers(1, 2000), st.booleans())
def test_the_parts_of_a_depth_are_the_depth(columns: int, spans: int, prologue: bool) -> None:
    d = Division.of(columns, spans, HOPPER, prologue=prologue)
    in_part = d.warps * d.steps
    assert (d.parts - 1) * in_part < spans <= d.parts * in_part
    assert d.parts == 1 or in_part * d.columns * 64 >= 32 << 10


def assert_close(case: Case, got: np.ndarray, expected: np.ndarray) -> None:
    tolerance = 4e-2 if case.dtype == "bfloat16" else 6e-3
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(33, 40),
    st.sampled_from(["NK", "q4 NK", "q4 KN"]),
    st.booleans(),
    st.sampled_from(["sm_80", "sm_90a"]),
)
def test_random_products(rows: int, columns: int, chunks: int, weight: str, gated: bool, arch: str) -> None:
    """Of parts of which the last one may be smaller."""
    depth = chunks * (64 if weight == "NK" else 256)
    case = Case(rows, columns, depth, weight, symbolic=False, gated=gated)
    arrays, expected = case.arrays()
    out = np.full_like(expected, np.nan)
    arrivals, sums = simulated(case.function(), arrays, out, small(arch))
    assert (sums.shape[0], arrivals.sum()) == (2, 0)
    assert_close(case, out, expected)


@pytest.mark.parametrize("descending", [False, True])
def test_as_loops(descending: bool, tmp_path: Path) -> None:
    case = Case(3, 21, 2304, "NK", symbolic=False)
    arrays, expected = case.arrays()
    mod = run_passes(IRModule({"main": case.function().with_attr("global_symbol", "main")}), entries())
    build_as_loops(mod, small("sm_80"), {descending: tmp_path / "lib.so"})
    out = np.zeros_like(expected)
    Library(tmp_path / "lib.so")["main"](*arrays, out)
    assert_close(case, out, expected)


def test_each_block_prefetches_its_weights_before_it_waits() -> None:
    """16 columns of two parts: rows of codes and of scales, then the wait, then the first load."""
    case = Case(1, 16, 8192 + 256, "q4 NK", symbolic=False)
    target = small("sm_90a")
    (text,) = assemble_modules(llvm_modules(lowered(case.function(), target), target, {}), target)
    names = re.findall(r"cp\.async\.bulk\.prefetch\.L2|griddepcontrol\.wait|ld\.global", text)
    prefetch = "cp.async.bulk.prefetch.L2"
    assert names[:4] == [prefetch, prefetch, "griddepcontrol.wait", "ld.global"]
    assert prefetch not in names[4:]
    arrays, expected = case.arrays()
    out = np.full_like(expected, np.nan)
    simulated(case.function(), arrays, out, target)
    assert_close(case, out, expected)
