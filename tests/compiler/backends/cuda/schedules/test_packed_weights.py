"""Matmuls with few rows and packed quantized weights: simulated results, instructions, memory accesses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.relax.ops.linear import linear
from mlc_compiler.relax.ops.normalize import rms_norm
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.schedule.layout import LAYOUTS
from tests.compiler.backends.cuda.products import Case, lowered
from tests.compiler.backends.cuda.products import simulated as simulated_function
from tests.compiler.backends.cuda.schedules.few_rows import (
    AMPERE,
    HOPPER,
    instructions_for_a_load,
    loop_of,
    simulated,
)

KINDS = ["q4 NK", "q4 KN", "q3 NK", "q3 KN", "q8 NK", "q8 KN", "book4 NK", "book4 KN", "e4m3 NK", "e5m2 NK"]
KINDS += ["byte4 NK", "byte4 KN", "half4 NK"]


def _of(size: int, indices: str) -> str:
    n, i = ("i0", "i1") if indices == "n, i" else ("i1", "i0")
    return f"lambda i0, i1: ({n} // 8, {i} // {size}, {n} % 8, {i} % {size})"


def _layouts(case: Case, packs: bool) -> dict[str, str]:
    layouts = lowered(case.function(), HOPPER, packs=packs)["main"].attrs.get(LAYOUTS, {})
    return {position: layout.text for position, layout in layouts.items()}


@settings(max_examples=16)
@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 7).map(lambda n: 8 * n) | st.integers(1, 50),
    depth=st.integers(1, 3).map(lambda n: 160 * n) | st.integers(1, 40).map(lambda n: 8 * n) | st.integers(1, 300),
    weight=st.sampled_from(KINDS),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    gated=st.booleans(),
    packs=st.booleans(),
    target=st.sampled_from([AMPERE, HOPPER]),
)
def test_any_size(
    rows: int, columns: int, depth: int, weight: str, dtype: str, gated: bool, packs: bool, target: Target
) -> None:
    simulated(Case(rows, columns, depth, weight, dtype, symbolic=False, gated=gated), target, packs)


@pytest.mark.parametrize("weight", KINDS)
def test_layouts(weight: str) -> None:
    """Whole spans and a partial one, of columns that are whole groups of 8."""
    simulated(Case(2, 24, 1440, weight, symbolic=False), HOPPER, packs=True)


@pytest.mark.parametrize("weight", ["q5 NK", "q6 KN"])
@pytest.mark.parametrize("rows", [1, 20])
def test_codes_in_two_planes(weight: str, rows: int) -> None:
    """No instruction unpacks them."""
    simulated(Case(rows, 24, 96, weight, symbolic=False), HOPPER)


@pytest.mark.parametrize(
    ("weight", "depth", "expected"),
    [
        ("q4 NK", 384, {"1": _of(16, "n, i"), "2": _of(4, "n, i")}),
        ("q4 KN", 384, {"1": _of(16, "i, n"), "2": _of(4, "i, n")}),
        ("q8 NK", 384, {"1": _of(16, "n, i"), "2": _of(2, "n, i")}),
        ("q3 NK", 4096, {"1": _of(16, "n, i"), "2": _of(4, "n, i")}),
        ("byte4 NK", 384, {"1": _of(16, "n, i"), "2": _of(4, "n, i")}),
        ("half4 NK", 384, {"1": _of(16, "n, i"), "2": _of(8, "n, i")}),
        ("q4 NK", 160, {}),  # would be padded from 5 groups to 8
        ("e4m3 NK", 384, {}),
    ],
)
def test_a_warp_reads_512_bytes_of_eight_columns(weight: str, depth: int, expected: dict[str, str]) -> None:
    case = Case(1, 16, depth, weight, symbolic=False)
    assert _layouts(case, packs=True) == expected
    assert _layouts(case, packs=False) == {}  # parameters that differ from call to call
    assert _layouts(Case(1, 20, depth, weight, symbolic=False), packs=True) == {}


@pytest.mark.parametrize(("weight", "depth"), [("q3 NK", 4000), ("q3 KN", 328), ("q8 NK", 384), ("book4 NK", 136)])
def test_norm_and_product(weight: str, depth: int) -> None:
    """The order of the codes is that of the activations, whether it permutes chunks of 8 or more."""
    case, rng = Case(2, 24, depth, weight, symbolic=False), np.random.default_rng(5)
    x, gain = (te.placeholder(shape, "float16", "x") for shape in ((1, 2, depth), (depth,)))
    parameters, w = case.weight_parameters()
    func = te.create_prim_func([x, gain, *parameters, linear.te(rms_norm.te(x, gain), w)])
    activations = rng.normal(1, 2, (1, 2, depth)).astype("float16")
    gains = rng.normal(size=depth).astype("float16")
    arrays, weights = case.weight_arrays(rng, np.dtype("float16"))
    out = np.zeros((1, 2, 24), "float16")
    simulated_function(func, [activations, gains, *arrays], out, HOPPER, packs=True)
    wide = activations.astype(np.float32)
    norm = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * gains).astype("float16")
    expected = norm.astype(np.float32) @ weights.astype(np.float32).T
    np.testing.assert_allclose(out.astype(np.float32), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [20, 70])
@pytest.mark.parametrize(
    "weight", ["q4 KN", "q3 NK", "q8 NK", "book4 KN", "byte4 NK", "half4 NK", "e4m3 NK", "e5m2 NK"]
)
def test_tiles_read_the_same_weights(weight: str, rows: int) -> None:
    simulated(Case(rows, 40, 384, weight, symbolic=False, gated=True), HOPPER, packs=True)


SIZES = [(4096, 4096), (28672, 4096), (4096, 14336)]
"""Columns and depths of a model with 8 B parameters."""


@pytest.mark.parametrize(("columns", "depth"), SIZES)
@pytest.mark.parametrize(
    ("weight", "dtype", "most"),
    [
        ("q4 NK", "float16", 80),
        ("q4 NK", "bfloat16", 88),
        ("book4 NK", "float16", 110),
        ("book4 NK", "bfloat16", 118),
        ("byte4 NK", "float16", 120),
        ("half4 NK", "float16", 130),
        ("q3 NK", "float16", 110),
        ("q3 NK", "bfloat16", 115),
        ("q8 NK", "float16", 35),
        ("q8 NK", "bfloat16", 68),
        ("e4m3 NK", "float16", 18),
        ("e4m3 NK", "bfloat16", 50),
        ("e5m2 NK", "float16", 18),
    ],
)
def test_instructions_for_512_bytes_of_weights(weight: str, dtype: str, most: int, columns: int, depth: int) -> None:
    """Nothing is converted by the slow instructions, and no codes are loaded in parts."""
    depth = -(-depth // 160) * 160 if weight.startswith("q3") else depth  # whole spans, as are nearly all
    loop = loop_of(Case(1, columns, depth, weight, dtype, symbolic=False), HOPPER)
    assert instructions_for_a_load(loop) <= most
    assert "cvt.rn.f16." not in loop and "ld.global.nc.b32" not in loop


@pytest.mark.parametrize("weight", ["q4 NK", "q3 NK", "book4 NK", "q8 NK", "e4m3 NK", "NK"])
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=lambda t: t.cpu)
def test_values_stay_in_registers(weight: str, target: Target) -> None:
    loop_of(Case(8, 28672, 4096, weight, symbolic=False), target)


@pytest.mark.parametrize(
    "weight", ["q4 NK", "q4 KN", "q3 NK", "book4 NK", "byte4 NK", "half4 NK", "q8 NK", "e4m3 NK", "NK"]
)
def test_memory_accesses(weight: str) -> None:
    """Each weight is read once, by requests of whole sectors; the activations by every block."""
    case = Case(1, 32, 2560, weight, symbolic=False)
    counts = simulated(case, HOPPER, packs=True)
    arrays, _ = case.arrays()
    x, *weights, _, _ = (a.nbytes for a in arrays)
    assert counts.distinct_bytes_read <= 1.03 * (sum(weights) + x + 4 * case.columns)
    assert counts.global_load_sectors <= 1.2 * (sum(weights) + 4 * x) / 32
    assert counts.bank_conflicts <= 0.05 * counts.ideal_wavefronts
