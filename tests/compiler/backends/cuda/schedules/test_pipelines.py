"""Matmuls with TMA and wgmma: results as loops and in the simulator, and the instructions of the machine code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.images import _resources as report_resources
from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Images
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.relax.ops.linear import linear
from mlc_compiler.sim.host_functions import Device
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.backends.cuda.instructions.kernels import assemble
from tests.compiler.backends.cuda.products import Case, lowered
from tests.compiler.backends.cuda.races import run
from tests.compiler.backends.cuda.scheduled import kernels

TARGET = Target({"kind": "cuda", "arch": ["sm_90a"], "multiprocessors": 1})
"""A GPU on which any product has enough large tiles."""


def close(case: Case, got: np.ndarray, expected: np.ndarray) -> None:
    tolerance = 2e-2 if case.dtype == "bfloat16" else 2e-3
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=tolerance, atol=2 * tolerance)


def ptx_of(func: PrimFunc, target: Target = TARGET) -> list[str]:
    return assemble_modules(llvm_modules(lowered(func, target), target, {}), target)


@pytest.mark.parametrize(
    "case",
    [
        Case(33, 136, 256, "q4 NK", "bfloat16", symbolic=False),
        Case(70, 72, 264, "NK", symbolic=False, gated=True),
    ],
    ids=lambda case: f"{case.weight} {case.rows}x{case.columns}x{case.depth}",
)
def test_as_loops(case: Case) -> None:
    operands, expected = case.arrays()
    close(case, run(kernels(case.function(), TARGET), *operands, np.full_like(expected, np.nan))[-1], expected)


@settings(max_examples=8)
@given(
    rows=st.integers(33, 280),
    columns=st.integers(2, 280),
    depth=st.integers(1, 60).map(lambda n: 8 * n),
    weight=st.sampled_from(["NK", "KN", "q4 NK", "q4 KN"]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    gated=st.booleans(),
)
def test_any_size(rows: int, columns: int, depth: int, weight: str, dtype: str, gated: bool) -> None:
    case = Case(rows, columns, depth, weight, dtype, symbolic=False, gated=gated)
    mod = lowered(case.function(), TARGET)
    (text,) = assemble_modules(llvm_modules(mod, TARGET, {}), TARGET)
    assert "cp.async.bulk.tensor" in text and "cp.async.cg" not in text
    operands, expected = case.arrays()
    result = np.full_like(expected, np.nan)
    Device.of([Images(text, {})]).run(mod.of_type(PrimFunc)["main"], *operands, result)
    close(case, result, expected)


@pytest.mark.parametrize("weight", ["NK", "q4 NK"])
@pytest.mark.parametrize("gated", [False, True])
def test_sums_stay_in_registers(weight: str, gated: bool, tmp_path: Path) -> None:
    """Neither spills nor products that the assembler makes wait for each other (its message C7510)."""
    (text,) = (t for t in ptx_of(Case(4096, 4096, 4096, weight, symbolic=False, gated=gated).function()))
    waits = {int(n) for n in re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", text)}
    assert ".local" not in text and waits == ({0, 1} if weight == "NK" else {0})
    report = assemble(text, "sm_90a", tmp_path)
    assert "C7510" not in report
    for resources in report_resources(report).values():
        assert resources.stack_bytes == resources.spill_bytes == 0 and resources.registers <= 128


@pytest.mark.parametrize("gated", [False, True])
def test_results_are_stored_in_whole_sectors(gated: bool) -> None:
    """As are the operands of what is fused loaded: 32 bytes of each sector, by accesses of 16 bytes."""
    case = Case(128, 128 // (1 + gated), 192, symbolic=False, gated=gated)
    mod = lowered(case.function(), TARGET)
    (text,) = assemble_modules(llvm_modules(mod, TARGET, {}), TARGET)
    assert {name.split(".")[-2:] == ["v4", "b32"] for name in re.findall(r"(?:ld|st)\.global\S*", text)} == {True}
    operands, expected = case.arrays()
    result = np.full_like(expected, np.nan)
    (launch,) = Device.of([Images(text, {})]).run(mod.of_type(PrimFunc)["main"], *operands, result)
    assert launch.counts.global_store_sectors == result.nbytes // 32
    assert launch.counts.shared_wavefronts <= 1.5 * launch.counts.ideal_wavefronts
    close(case, result, expected)


def product_of(x_shape: tuple[int, ...], columns: int, depth: int, reuse: bool) -> PrimFunc:
    """``x @ w``, or ``x @ w + x``."""
    x, w = te.placeholder(x_shape, "float16", "x"), te.placeholder((columns, depth), "float16", "w")
    result = linear.te(x, w)
    return te.create_prim_func([x, w, result + x if reuse else result])


def test_activations_that_a_kernel_needs_elsewhere_are_copied_otherwise() -> None:
    """A buffer is a tensor map or an address; the same holds for rows that are no matrix as a whole."""
    assert "cp.async.bulk.tensor" in "".join(ptx_of(product_of((2, 40, 64), 64, 64, reuse=False)))
    (text,) = ptx_of(product_of((1, 80, 64), 64, 64, reuse=True))
    assert "cp.async.bulk" not in text and "cp.async.cg" in text and "wgmma" in text


def test_other_gpus_have_no_tensor_copies() -> None:
    assert not any("cp.async.bulk" in t for t in ptx_of(Case(64, 64, 64).function(), Target("cuda:sm_80")))
