"""Products on tensor cores in the PTX simulator, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.images import llvm_modules
from mlc_compiler.backends.cuda.launches import Kernel
from mlc_compiler.backends.cuda.machine import STATIC_SHARED_BYTES
from mlc_compiler.backends.cuda.matmul.tiles import FEW_ROWS, LARGE, SMALL
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.sim import Memory, parse_ptx, run
from mlc_compiler.target import Target
from tests.compiler.backends.cuda.products import Case, lowered

TARGET = Target("cuda:sm_80")


def whole_lines(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, padded to a multiple of 16: LLVM may load the 16 aligned bytes around an element."""
    data = np.frombuffer(array.tobytes(), np.uint8)
    return np.pad(data, (0, -data.size % 16))


def check(case: Case) -> None:
    kernels: dict[str, Kernel] = {}
    (text,) = assemble_modules(llvm_modules(lowered(case.function(), TARGET), TARGET, kernels), TARGET)
    operands, expected = case.arrays()
    memory = Memory()
    result = np.full(expected.shape, np.nan, expected.dtype)
    addresses = [memory.allocate(whole_lines(array)) for array in (*operands, result)]
    few = case.rows <= FEW_ROWS
    name = list(kernels)[-1 if case.symbolic and not few else 0]  # the kernel for few rows is the first
    tile, shared = SMALL if few else LARGE, kernels[name].launch.shared_bytes
    grid = (-(-case.rows // tile.rows), -(-case.columns // tile.columns))
    args = [*addresses, case.rows] if case.symbolic else addresses
    dynamic = shared if shared > STATIC_SHARED_BYTES else 0
    run(parse_ptx(text).kernels[name], grid, (tile.threads,), args, memory, dynamic)
    got = memory.view(addresses[-1], result.dtype, result.shape)
    tolerance = 2e-2 if case.dtype == "bfloat16" else 2e-3
    np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("weight", ["NK", "KN", "q4 NK", "q4 KN"])
@pytest.mark.parametrize(("rows", "dtype"), [(1, "float16"), (129, "bfloat16")])
def test_product(rows: int, dtype: str, weight: str) -> None:
    check(Case(rows, 136, 160, weight, dtype))


@settings(max_examples=10)
@given(
    rows=st.integers(2, 150),
    columns=st.integers(2, 140),
    depth=st.integers(2, 140),
    weight=st.sampled_from(["NK", "KN", "q4 NK", "q4 KN"]),
    symbolic=st.booleans(),
)
def test_any_size(rows: int, columns: int, depth: int, weight: str, symbolic: bool) -> None:
    check(Case(rows, columns, depth, weight, "float16", symbolic))
