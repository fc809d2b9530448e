"""Matmuls with quantized weights as machine code, for each int8 dot product instruction of this machine."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.backends.cpu.instructions import DOT_PRODUCTS, DotProduct
from mlc_compiler.backends.cpu.machine import Cpu
from mlc_compiler.backends.cpu.quantized.matmuls import MIN_MAGNITUDE
from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.target import Target
from quantization.schemes import SCHEMES
from tests.compiler.backends.cpu.dot_products import dots, operands
from tests.compiler.schedules.meaning import random_arguments, scheduled
from tests.compiler.schedules.test_matmul import bias_and_residual, quantized
from tests.compiler.schedules.test_quantized_matmuls import NORMAL_FLOAT, Codes, gated, in_fixed_point, rewritten

HERE = Cpu.of(Target("cpu"))
TARGETS = {
    name: Target(f"cpu:{name}")
    for name in ("x86-64-v3", "alderlake", "znver4", "neoverse-n1", "neoverse-v1")
    if all(HERE.has(feature) for feature in Cpu.of(Target(f"cpu:{name}")).isa)
}


BOOKS = [Codes(bits, values=SCHEMES[f"q{bits}f16_nl8"].values) for bits in (3, 5, 6)]


def test_some_instruction_is_tested() -> None:
    assert TARGETS or not any(HERE.has(row.intrin.requires) for row in DOT_PRODUCTS)


@pytest.mark.parametrize("row", [r for r in DOT_PRODUCTS if HERE.has(r.intrin.requires)], ids=lambda r: r.intrin.name)
def test_dot_products_are_exact(row: DotProduct) -> None:
    words, fours, expected = operands(row, np.random.default_rng(11))
    out = np.zeros(expected.shape, np.int32)
    build(dots(row), Target("cpu"))["main"](words, fours, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("activation_bits", [8, 16])
@pytest.mark.parametrize(
    "codes",
    [Codes(), Codes(8), Codes(3, 40), Codes(6), Codes(layout="KN"), Codes(values=NORMAL_FLOAT), *BOOKS],
    ids=["4", "8", "3", "6", "KN", "book", *(f"book{codes.bits}" for codes in BOOKS)],
)
def test_machine_code(codes: Codes, activation_bits: int, to: Target) -> None:
    """Random codes; then the maximum and minimum codes with activations of maximum magnitude."""
    k = 2 * codes.group + 8
    func = quantized(Var("n"), 64, k, codes.bits, codes.group, codes.layout, bias_and_residual, codes.values)
    func = scheduled(rewritten(func, to, activation_bits), to)
    assert func.attrs["schedule"] == "QuantizedMatmul"
    compiled = build(IRModule({"f": func}), to)["f"]
    original = quantized(Var("n"), 64, k, codes.bits, codes.group, codes.layout, bias_and_residual, codes.values)
    for extreme in (None, 0, 2**32 - 1):
        x, words, scales, bias, residual, _ = random_arguments(original, {"n": 5})
        if extreme is not None:
            words[...] = extreme
            x[...] = np.sign(x) * 3
            x[0] = -3
        out = np.empty((5, 64), np.float32)
        layouts = func.attrs["layouts"]
        compiled(x, layouts["1"].pack(words, 1), layouts["2"].pack(scales, np.nan), bias, residual, out)
        fixed = in_fixed_point(x, codes.group, activation_bits)
        expected = fixed @ codes.weights(words, scales, k).T + bias + residual
        np.testing.assert_allclose(out, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("rows", [1, 70])
def test_halves_that_are_combined(rows: int, to: Target) -> None:
    codes = Codes()
    original = quantized(Var("n"), 192, 96, after=gated)
    func = scheduled(rewritten(original, to, 8), to)
    x, words, scales, residual, out = random_arguments(original, {"n": rows})
    layouts = func.attrs["layouts"]
    build(IRModule({"f": func}), to)["f"](
        x, layouts["1"].pack(words, 1), layouts["2"].pack(scales, np.nan), residual, out
    )
    product = in_fixed_point(x, codes.group, 8) @ codes.weights(words, scales, 96).T
    expected = product[:, :96] * product[:, 96:] + residual
    np.testing.assert_allclose(out, expected, rtol=0, atol=6e-6 * np.abs(expected).max())


@pytest.mark.parametrize("to", TARGETS.values(), ids=TARGETS)
def test_small_activations(to: Target) -> None:
    """A step is relative to the largest activation of a group; only below MIN_MAGNITUDE are activations zero."""
    codes = Codes()
    func = quantized(Var("n"), 64, codes.group, codes.bits, codes.group, codes.layout, bias_and_residual, codes.values)
    x, words, scales, bias, residual, _ = random_arguments(func, {"n": 4})
    bias[...] = residual[...] = 0
    largest = np.float32([[1e-2], [1e-3], [1.01 * MIN_MAGNITUDE], [0.99 * MIN_MAGNITUDE]])
    x = x / np.abs(x).max(1, keepdims=True) * largest
    func = scheduled(rewritten(func, to, 16), to)
    layouts, out = func.attrs["layouts"], np.empty((4, 64), np.float32)
    build(IRModule({"f": func}), to)["f"](
        x, layouts["1"].pack(words, 1), layouts["2"].pack(scales, np.nan), bias, residual, out
    )
    expected = x.astype(np.float64) @ codes.weights(words, scales, codes.group).T
    np.testing.assert_allclose(out[:3] / largest[:3], expected[:3] / largest[:3], rtol=0, atol=1e-2)
    assert np.abs(expected[3]).max() > 0 and not out[3].any()
