"""4-bit weights times one row as sums over bfloat16 pairs: what is rewritten, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.module import IRModule
from mlc_compiler.relax.ops.linear import dequantize
from mlc_compiler.schedules.cpu.bfloat16_pairs import ATTRIBUTE, Bfloat16Pairs, PairsOfBfloat16
from mlc_compiler.script import script
from mlc_compiler.target import target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc

ZEN4 = target("cpu:znver4")


def quantized_linear(rows: int = 1, n: int = 32, k: int = 64, add: bool = True) -> PrimFunc:
    """x [1, rows, k] times 4-bit weights [n, k], with a residual added."""
    q = te.placeholder((n, -(-k // 32) * 4), "uint32", "q")
    scale = te.placeholder((n, -(-k // 32)), "float16", "scale")
    x = te.placeholder((1, rows, k), "float32", "x")
    residual = te.placeholder((1, rows, n), "float32", "residual")
    w = dequantize.te(q, scale, bits=4, group=32, k=k, dtype="float32")
    j = te.reduce_axis(k, "k")
    y = te.compute((1, rows, n), lambda b, i, c: te.sum(x[b, i, j] * w[c, j], axis=j), name="matmul")
    if not add:
        return te.create_prim_func([q, scale, x, y])
    out = te.compute((1, rows, n), lambda b, i, c: residual[b, i, c] + y[b, i, c], name="add")
    return te.create_prim_func([q, scale, x, residual, out])


def rewritten(func: PrimFunc, machine=ZEN4) -> PrimFunc:
    return Bfloat16Pairs(machine).run(IRModule({"f": func}))["f"]


def operands(n: int = 32, k: int = 64) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    q = rng.integers(0, 2**32, (n, k // 8), dtype=np.uint32)
    scale = (rng.random((n, k // 32)) * 0.1).astype(np.float16)
    return [q, scale, *(rng.standard_normal(s).astype(np.float32) for s in ((1, 1, k), (1, 1, n)))]


def float64_result(q: np.ndarray, scale: np.ndarray, x: np.ndarray, residual: np.ndarray) -> np.ndarray:
    codes = np.stack([(q >> np.uint32(4 * i)) & 15 for i in range(8)], -1).reshape(len(q), -1).astype(np.float64) - 7
    return residual + x @ (codes * np.repeat(scale.astype(np.float64), 32, axis=1)).T


@pytest.mark.parametrize("stage", ["defined", "rewritten"])
def test_the_numbers_stay(stage: str):
    func = quantized_linear() if stage == "defined" else rewritten(quantized_linear())
    args = operands()
    out = np.zeros((1, 1, 32), np.float32)
    run_prim_func(func, *args, out)
    np.testing.assert_allclose(out, float64_result(*args), rtol=0, atol=5e-5)


def test_the_scheduled_function_gives_the_same_in_its_layout():
    func = PairsOfBfloat16().apply(rewritten(quantized_linear()), ZEN4).func
    q, scale, x, residual = operands()
    out = np.zeros((1, 1, 32), np.float32)
    tiled = [np.ascontiguousarray(a.reshape(1, 32, -1).transpose(0, 2, 1)) for a in (q, scale)]
    run_prim_func(func, *tiled, x, residual, out)
    np.testing.assert_allclose(out, float64_result(q, scale, x, residual), rtol=0, atol=5e-5)
    text = script(func)
    assert text.count("intrinsic.avx512.vdpbf16ps") == text.count("intrinsic.avx512.nibbles_to_bf16") == 1


def test_the_result_is_not_taken_for_a_weight():
    func = PairsOfBfloat16().apply(rewritten(quantized_linear(add=False)), ZEN4).func
    assert func.attrs["tiled"] == {"0": (0, 32), "1": (0, 32)}


@pytest.mark.parametrize("case", [{"rows": 2}, {"n": 40}, {"k": 80}])
def test_other_shapes_stay_as_they_are(case: dict[str, int]):
    func = quantized_linear(**case)
    assert rewritten(func) is func


def test_a_cpu_without_the_instruction_keeps_the_function():
    func = quantized_linear()
    assert rewritten(func, target("cpu:x86-64-v3")) is func
    assert rewritten(func).attrs[ATTRIBUTE]
