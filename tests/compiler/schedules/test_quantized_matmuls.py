"""Matmuls with quantized weights in integer arithmetic: the functions that are rewritten, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mlc_compiler.backends.cpu.machine import Cpu
from mlc_compiler.backends.cpu.passes.quantized_matmuls import QuantizedMatmuls
from mlc_compiler.backends.cpu.quantized.plan import Plan, Weight, even_divisor
from mlc_compiler.ir.expr import Var
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PARALLEL, Block, For, PrimFunc
from mlc_compiler.verifier import verify
from quantization.schemes import SCHEMES
from tests.compiler.code_words import stored_codes
from tests.compiler.schedules.meaning import AVX2, AVX512, Backwards, lowered, random_arguments, run, scheduled
from tests.compiler.schedules.test_matmul import Epilogue, bias_and_residual, product, quantized, silu

AVX_VNNI, SDOT, I8MM = Target("cpu:alderlake"), Target("cpu:neoverse-n1"), Target("cpu:neoverse-v1")
NORMAL_FLOAT = (-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 72, 92, 127)
STEPS = {8: 127, 16: 127 * 256 + 127}


def rewritten(func: PrimFunc, to: Target = AVX512, activation_bits: int | None = 16) -> PrimFunc:
    return QuantizedMatmuls(to, activation_bits).run(IRModule({"f": func}))["f"]


@dataclass(frozen=True)
class Codes:
    """How the weights of a case are stored."""

    bits: int = 4
    group: int = 32
    layout: str = "NK"
    values: tuple[int, ...] = ()

    def weights(self, words: np.ndarray, scales: np.ndarray, k: int) -> np.ndarray:
        """float64 [N, k]."""
        if self.layout == "KN":
            words, scales = words.T, scales.T
        codes = stored_codes(words, self.bits, self.group)[:, :k]
        numbers = np.array(self.values)[codes] if self.values else codes - ((1 << (self.bits - 1)) - 1)
        return numbers * np.repeat(scales.astype(float), self.group, axis=1)[:, :k]


def in_fixed_point(x: np.ndarray, group: int, activation_bits: int) -> np.ndarray:
    """float64: activations quantized with one scale per group, and dequantized."""
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % group))).reshape(len(x), -1, group)
    largest = np.abs(padded).max(axis=-1, keepdims=True)
    steps = np.float32(STEPS[activation_bits])
    fixed = np.round(padded * np.divide(steps, largest, out=np.zeros_like(largest), where=largest > 1e-30))
    return (fixed * largest.astype(float) / steps).reshape(len(x), -1)[:, : x.shape[1]]


def check(func: PrimFunc, codes: Codes, to: Target, activation_bits: int = 16, sizes: dict[str, int] | None = None):
    """Assert that the result is the matmul of quantized activations, up to float32 rounding of sums."""
    result = scheduled(rewritten(func, to, activation_bits), to)
    verify(IRModule({"f": result}))
    assert result.attrs["schedule"] == "QuantizedMatmul"
    inputs = random_arguments(func, sizes or {})
    x, words, scales = inputs[:3]
    expected = in_fixed_point(x, codes.group, activation_bits) @ codes.weights(words, scales, x.shape[1]).T
    loops = lowered(result)
    for variant in (result, loops, Backwards()(loops)):
        (got,) = run(variant, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
    return result


@pytest.mark.parametrize(
    ("dot", "to", "codes", "activation_bits"),
    [
        ("dot4.avx512vnni", AVX512, Codes(), 16),
        ("dot4.avxvnni", AVX_VNNI, Codes(), 16),
        ("dot4.avx2.x8", AVX2, Codes(), 16),
        ("dot4.avx2.x10", AVX2, Codes(3, 40), 16),
        ("dot4.avx2.x5", AVX2, Codes(4, 40), 16),
        ("dot4.avx2.x4", AVX2, Codes(5), 16),
        ("dot4.avx2.x2", AVX2, Codes(6), 16),
        ("dot4.avx2", AVX2, Codes(7), 16),
        ("dot4.avx2.signed", AVX2, Codes(8), 8),
        ("dot4.avx2.bytes", AVX2, Codes(8), 16),
        ("dot4.neon", SDOT, Codes(), 16),
        ("dot4.neon.i8mm", I8MM, Codes(), 16),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_instruction(dot: str, to: Target, codes: Codes, activation_bits: int) -> None:
    func = quantized(3, 32, 2 * codes.group, codes.bits, codes.group, values=codes.values)
    result = check(func, codes, to, activation_bits)
    assert dot == result.attrs["quantized_matmul"]["dot"]
    assert any(dot == block for block in tensorized(result))


@pytest.mark.parametrize("to", [AVX512, AVX2, SDOT], ids=["avx512", "avx2", "sdot"])
@pytest.mark.parametrize(
    "codes",
    [
        *(Codes(3, 40), Codes(8), Codes(2, 64), Codes(5, 24), Codes(3), Codes(5), Codes(6, 64)),
        *(Codes(layout="KN"), Codes(8, layout="KN"), Codes(values=NORMAL_FLOAT)),
        Codes(6, values=SCHEMES["q6f16_nl8"].values),
    ],
    ids=lambda codes: f"{codes.bits}-{codes.group}-{codes.layout}{'-book' if codes.values else ''}",
)
def test_bits_groups_layouts_codebooks(codes: Codes, to: Target) -> None:
    """Includes a partial last group."""
    k = 2 * codes.group + 8
    check(quantized(2, 32, k, codes.bits, codes.group, codes.layout, values=codes.values), codes, to)


@pytest.mark.parametrize("to", [AVX512, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("rows", [1, 3, Var("n")], ids=["1", "3", "n"])
def test_activations_of_eight_bits(rows: int | Var, to: Target) -> None:
    check(quantized(rows, 32, 64), Codes(), to, activation_bits=8, sizes={"n": 5})


def gated(y: te.Tensor, inputs: list[te.Tensor]) -> te.Tensor:
    """An epilogue: the first half of the columns times the second half, plus a residual."""
    half = y.shape[-1] // 2
    residual = te.placeholder((*y.shape[:-1], half), "float32", "residual")
    inputs.append(residual)
    return te.compute(residual.shape, lambda *i: y[i] * y[(*i[:-1], i[-1] + half)] + residual[i], name="gated")


@pytest.mark.parametrize("to", [AVX512, AVX2, SDOT], ids=["avx512", "avx2", "sdot"])
@pytest.mark.parametrize("codes", [Codes(), Codes(8), Codes(3, 40), Codes(layout="KN")], ids=["4", "8", "3", "KN"])
@pytest.mark.parametrize("rows", [1, 3, Var("n")], ids=["1", "3", "n"])
def test_halves_that_are_combined(rows: int | Var, codes: Codes, to: Target) -> None:
    """A tile has columns of both halves; each is a vector wide on CPUs with few registers."""
    func = quantized(rows, 96, 2 * codes.group + 8, codes.bits, codes.group, codes.layout, gated)
    result = scheduled(rewritten(func, to, 8), to)
    verify(IRModule({"f": result}))
    assert result.attrs["quantized_matmul"]["sides"] == 2
    x, words, scales, residual, _ = inputs = random_arguments(func, {"n": 5})
    whole = in_fixed_point(x, codes.group, 8) @ codes.weights(words, scales, x.shape[1]).T
    expected = whole[:, :48] * whole[:, 48:] + residual
    loops = lowered(result)
    for variant in (result, loops, Backwards()(loops)):
        (got,) = run(variant, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


def test_which_gates_join_a_product() -> None:
    """Those of matrices in integers, whose halves the lanes of the instruction divide."""
    gates = QuantizedMatmuls(AVX512, 8).gates
    codes, other = (quantized(1, columns, 64) for columns in (96, 80))
    assert gates.dtypes == {"float32"} and gates.fits([codes]) and not gates.fits([other])
    assert not gates.fits([product((1,), 96, 64)])
    assert not QuantizedMatmuls(AVX512, None).gates.dtypes


@pytest.mark.parametrize(
    ("extent", "limit", "cores", "divisor"),
    [(160, 2, 1, 2), (160, 2, 16, 2), (160, 2, 32, 1), (36, 2, 64, 1), (0, 2, 8, 2)],
)
def test_even_divisors(extent: int, limit: int, cores: int, divisor: int) -> None:
    assert even_divisor(extent, limit, cores) == divisor


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65])
def test_tiles_of_rows(count: int) -> None:
    """A tile has 64 rows, two of them in registers."""
    check(quantized(Var("n"), 32, 32), Codes(), AVX512, sizes={"n": count})
    check(quantized(count, 32, 32), Codes(), AVX512)


@pytest.mark.parametrize(
    ("to", "digits", "sides", "rows"),
    [(AVX512, 1, 1, 4), (AVX512, 1, 2, 4), (AVX512, 2, 1, 2), (AVX2, 1, 1, 4), (AVX2, 1, 2, 1), (SDOT, 1, 1, 4)],
)
def test_eight_sequences_fill_the_tiles_of_rows(to: Target, digits: int, sides: int, rows: int) -> None:
    weight = Weight(columns=64, length=256, bits=4, group=32, layout="NK", values=())
    plan = Plan.of(weight, Cpu.of(to), digits, sides)
    assert plan is not None and (plan.rows, plan.rows_in_registers) == (64, rows)


@pytest.mark.parametrize(
    ("columns", "streams", "after"),
    [
        *((128, 1, None), (256, 2, None), (320, 2, None), (384, 3, bias_and_residual)),
        *((512, 4, lambda y, _: silu(y) * y), (1024, 4, gated)),
    ],
)
def test_streams_of_a_row(columns: int, streams: int, after: Epilogue | None) -> None:
    """A row is multiplied with up to four tiles of eight columns at once; at least 16 iterations are left."""
    func = quantized(1, columns, 64, after=after)
    inputs = random_arguments(func, {})
    (expected,) = run(func, inputs)
    result = scheduled(rewritten(func, AVX2), AVX2)
    verify(IRModule({"f": result}))
    *_, concurrent = (n for n in walk(result) if isinstance(n, For) and n.kind == PARALLEL)
    assert concurrent.extent == columns // (16 if after is gated else 8) // streams
    loops = lowered(result)
    for variant in (loops, Backwards()(loops)):
        (got,) = run(variant, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=2**-13 * np.abs(expected).max())


@pytest.mark.parametrize(("cores", "tiles"), [(1, 5), (4, 10), (5, 5), (8, 5), (16, 10)])
def test_tiles_of_columns_are_divided_over_the_cores_of_the_target(cores: int, tiles: int) -> None:
    """160 columns are five tiles of 32, or ten of 16 where the largest share of a core is less with these."""
    to = Target(f"cpu:znver4 -num-cores={cores}")
    result = check(quantized(1, 160, 64), Codes(), to)
    *_, concurrent = (n for n in walk(result) if isinstance(n, For) and n.kind == PARALLEL)
    assert concurrent.extent == tiles


@pytest.mark.parametrize(
    ("rows", "columns", "k", "after"),
    [
        *((1, 96, 576, None), (1, 64, 96, bias_and_residual), (2, 32, 64, lambda y, _: silu(y) * y)),
        *((9, 32, 64, bias_and_residual), (Var("n"), 32, 96, bias_and_residual)),
    ],
)
def test_it_is_near_float32(rows: int | Var, columns: int, k: int, after: Epilogue | None) -> None:
    func = quantized(rows, columns, k, after=after)
    inputs = random_arguments(func, {"n": 6})
    (expected,) = run(func, inputs)
    (got,) = run(lowered(scheduled(rewritten(func), AVX512)), inputs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2**-13 * np.abs(expected).max())


def test_rows_that_are_not_ordinary_numbers() -> None:
    """Zeros and tiny numbers give zero, large ones are within tolerance, NaN and infinity affect only their row."""
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
    ("func", "to"),
    [
        *((quantized(rows, 20, 64), AVX512) for rows in (1, 13)),
        *((quantized(None, 32, 64), AVX512), (quantized(1, 24, 64), AVX512)),
        *((quantized(1, 32, 64, bits=16), AVX512), (quantized(1, 32, 60, bits=5, group=30), AVX512)),
        *((quantized(1, 32, 64), Target("cpu:x86-64")), (quantized(1, 32, 64), Target("cpu:generic"))),
    ],
    ids=["columns", "columns-rows", "vector", "lanes", "wide-codes", "group", "sse2", "generic"],
)
def test_other_products_stay(func: PrimFunc, to: Target) -> None:
    assert rewritten(func, to) is func


def test_exact_products_stay() -> None:
    func = quantized(1, 32, 64)
    assert rewritten(func, activation_bits=None) is func


def tensorized(node: Any) -> list[str]:
    return [n.annotations["tensorized"] for n in walk(node) if isinstance(n, Block) and "tensorized" in n.annotations]
