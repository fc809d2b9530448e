"""Matmuls with bfloat16 weights by dot products of pairs: which are rewritten, and their results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.backends.cpu.instructions.bfloat16 import DOT2_PAIRS
from mlc_compiler.backends.cpu.machine import Cpu
from mlc_compiler.backends.cpu.passes.bfloat16_matmuls import Bfloat16Matmuls
from mlc_compiler.ir.expr import ExprLike
from mlc_compiler.ir.expr import Var as Size
from mlc_compiler.ir.module import IRModule
from mlc_compiler.optimization import Optimization
from mlc_compiler.passes.base import FunctionPass
from mlc_compiler.pipeline import pipeline
from mlc_compiler.relax.ops import get_operator
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.verifier import verify
from tests.compiler.schedules.meaning import AVX2, AVX512, Backwards, lowered, random_arguments, run, scheduled
from tests.compiler.schedules.test_matmul import bias_and_residual, product, silu

N = Size("n")


def rewritten(func: PrimFunc, to: Target = AVX512) -> PrimFunc:
    return Bfloat16Matmuls(to).run(IRModule({"f": func}))["f"]


def weighted(rows: tuple[ExprLike, ...], columns: int, k: int) -> PrimFunc:
    return product(rows, columns, k, bias_and_residual, "bfloat16").with_attr("activations", (0, 3))


def expected(x: np.ndarray, w: np.ndarray, bias: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """float64: the matmul of activations rounded to bfloat16, plus bias and residual."""
    return x.astype(ml_dtypes.bfloat16).astype(float) @ w.astype(float).T + bias + residual


@pytest.mark.parametrize(
    ("rows", "columns", "k", "n"),
    [
        *(((N,), 48, 6, n) for n in (0, 1, 5, 17)),
        *(((count,), 32, 64, 0) for count in (1, 3, 13)),
        *(((1, N), 16, 10, 6), ((N, 1), 64, 32, 6), ((2, N), 16, 4, 5)),
    ],
)
def test_rows_and_sizes(rows: tuple[ExprLike, ...], columns: int, k: int, n: int) -> None:
    func = weighted(rows, columns, k)
    result = scheduled(rewritten(func), AVX512)
    verify(IRModule({"f": result}))
    assert result.attrs["schedule"] == "Bfloat16Matmul"
    inputs = random_arguments(func, {"n": n})
    loops = lowered(result)
    for variant in (result, loops, Backwards()(loops)):
        (got,) = run(variant, inputs)
        np.testing.assert_allclose(got, expected(*inputs[:4]), rtol=0, atol=1e-5)


def test_blocks_before_the_product() -> None:
    """They are computed where the activations are rounded."""
    x, w = te.placeholder((N, 8), "float32", "x"), te.placeholder((16, 8), "bfloat16", "w")
    func = te.create_prim_func([x, w, get_operator("linear").te(silu(x), w)])
    result = scheduled(rewritten(func), AVX512)
    assert result.attrs["schedule"] == "Bfloat16Matmul"
    inputs = random_arguments(func, {"n": 5})
    numbers = inputs[0] / (1 + np.exp(-inputs[0]))
    (got,) = run(lowered(result), inputs)
    nothing = np.zeros(1, np.float32)
    np.testing.assert_allclose(got, expected(numbers, inputs[1], nothing, nothing), rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    ("func", "to"),
    [
        (weighted((1,), 24, 64), AVX512),
        (weighted((1,), 32, 7), AVX512),
        (weighted((), 32, 64), AVX512),
        (weighted((1,), 32, 64), AVX2),
        (product((1,), 32, 64, dtype="float16"), AVX512),
        (weighted((1,), 32, 64).with_attr("activations", (0, 1)), AVX512),
    ],
    ids=["columns", "depth", "vector", "no-instruction", "float16", "activation"],
)
def test_other_products_stay(func: PrimFunc, to: Target) -> None:
    assert rewritten(func, to) is func


def test_functions_are_rewritten_one_by_one() -> None:
    """So that the pipeline runs the pass on several at once."""
    assert isinstance(Bfloat16Matmuls(AVX512), FunctionPass)


@pytest.mark.parametrize(("options", "rounds"), [("O3", True), ("act=16", False), ("O2", False), ("O1", False)])
def test_options(options: str, rounds: bool) -> None:
    """Only where activations may have eight bits."""
    steps = pipeline(AVX512, Optimization.parse(options))
    assert any(isinstance(step, Bfloat16Matmuls) for step in steps) == rounds


@pytest.mark.skipif(not Cpu.of(Target("cpu")).has(DOT2_PAIRS.requires), reason="this CPU has no such instruction")
@pytest.mark.parametrize("count", [1, 29])
def test_machine_code(count: int) -> None:
    """The same bits for a row alone and among others."""
    original = weighted((N,), 48, 48)
    func = scheduled(rewritten(original), Target("cpu"))
    compiled, layout = build(IRModule({"f": func}), "cpu")["f"], func.attrs["layouts"]["1"]
    x, w, bias, residual, out = random_arguments(original, {"n": count})
    compiled(x, layout.pack(w, np.nan), bias, residual, out)
    np.testing.assert_allclose(out, expected(x, w, bias, residual), rtol=0, atol=1e-5)
    alone = np.empty_like(out[-1:])
    compiled(x[-1:], layout.pack(w, np.nan), bias, residual[-1:], alone)
    np.testing.assert_array_equal(alone, out[-1:])
