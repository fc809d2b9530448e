"""4-bit weights times one row by bfloat16 pairs: what is rewritten, and how near it stays to float32."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.ir.module import IRModule
from mlc_compiler.schedules.cpu.bfloat16_pairs import Bfloat16Pairs
from mlc_compiler.script import verify
from mlc_compiler.tir.nodes import PrimFunc
from tests.compiler.schedules.meaning import AVX2, AVX512, Backwards, lowered, random_arguments, run, scheduled
from tests.compiler.schedules.test_matmul import Epilogue, bias_and_residual, quantized, silu


def rewritten(func: PrimFunc, to: object = AVX512) -> PrimFunc:
    return Bfloat16Pairs(to).run(IRModule({"f": func}))["f"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "k", "after"),
    [(32, 32, None), (64, 96, bias_and_residual), (96, 576, None), (32, 64, lambda y, _: silu(y) * y)],
)
def test_one_row(columns: int, k: int, after: Epilogue | None) -> None:
    func = quantized(1, columns, k, after=after)
    result = scheduled(rewritten(func), AVX512)
    verify(IRModule({"f": result}))
    assert result.attrs["schedule"] == "PairsOfBfloat16"
    inputs = random_arguments(func, {})
    (expected,) = run(func, inputs)
    loops = lowered(result)
    for variant in (result, loops, Backwards()(loops)):
        (got,) = run(variant, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=2**-13 * np.abs(expected).max())


@pytest.mark.parametrize(
    "func",
    [
        *(quantized(rows, 32, 64) for rows in (None, 2, 13)),
        *(quantized(1, columns, 64) for columns in (20, 48)),
        *(quantized(1, 32, 40, group=40), quantized(1, 32, 64, bits=8), quantized(1, 32, 64, layout="KN")),
    ],
)
def test_other_products_stay(func: PrimFunc) -> None:
    assert rewritten(func) is func


def test_other_targets_have_no_such_instruction() -> None:
    func = quantized(1, 32, 64)
    assert rewritten(func, AVX2) is func
