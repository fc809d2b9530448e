"""4-bit weights times activations in fixed point: what is rewritten, and how near it stays to float32."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.backends.cpu.passes.quantized_products import QuantizedProducts
from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.verifier import verify
from tests.compiler.schedules.meaning import AVX2, AVX512, Backwards, lowered, random_arguments, run, scheduled
from tests.compiler.schedules.test_matmul import Epilogue, bias_and_residual, quantized, silu


def rewritten(func: PrimFunc, to: object = AVX512) -> PrimFunc:
    return QuantizedProducts(to).run(IRModule({"f": func}))["f"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "columns", "k", "after"),
    [
        (1, 32, 32, None),
        (1, 96, 576, None),
        (1, 64, 96, bias_and_residual),
        (2, 32, 64, lambda y, _: silu(y) * y),
        (9, 32, 64, bias_and_residual),
        (Var("n"), 64, 64, None),
        (Var("n"), 32, 96, bias_and_residual),
    ],
)
def test_scheduled_product_is_near_float32(rows: int | Var, columns: int, k: int, after: Epilogue | None) -> None:
    func = quantized(rows, columns, k, after=after)
    result = scheduled(rewritten(func), AVX512)
    verify(IRModule({"f": result}))
    assert result.attrs["schedule"] == "QuantizedProduct"
    inputs = random_arguments(func, {"n": 6})
    (expected,) = run(func, inputs)
    loops = lowered(result)
    for variant in (result, loops, Backwards()(loops)):
        (got,) = run(variant, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=2**-13 * np.abs(expected).max())


def test_rows_that_are_not_ordinary_numbers() -> None:
    """Zeros and tiny numbers give zero, large ones are exact enough, NaN and infinity stay in their row."""
    func = quantized(7, 32, 64)
    x, q, scale, out = random_arguments(func, {})
    x[0], x[1] = 0, 1e-38
    x[2] *= 1e34 / np.abs(x[2]).max()
    x[3, 5], x[4, 63], x[5, 40] = np.nan, np.inf, -np.inf
    (expected,) = run(func, [x, q, scale, out])
    (got,) = run(lowered(scheduled(rewritten(func), AVX512)), [x, q, scale, out])
    np.testing.assert_array_equal(got[:2], 0)
    np.testing.assert_array_equal(np.isfinite(got).all(axis=1), [True, True, True, False, False, False, True])
    for row in (2, 6):
        np.testing.assert_allclose(got[row], expected[row], rtol=0, atol=2**-13 * np.abs(expected[row]).max())


@pytest.mark.parametrize(
    "func",
    [
        *(quantized(rows, 20, 64) for rows in (None, 1, 13)),
        *(quantized(1, 48, 64), quantized(1, 32, 40, group=40)),
        *(quantized(1, 32, 64, bits=8), quantized(1, 32, 64, layout="KN")),
    ],
)
def test_other_products_stay(func: PrimFunc) -> None:
    assert rewritten(func) is func


def test_other_targets_have_no_such_instruction() -> None:
    func = quantized(1, 32, 64)
    assert rewritten(func, AVX2) is func
