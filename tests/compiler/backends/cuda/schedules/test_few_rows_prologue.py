"""Norms fused into matmuls with few rows: one kernel, in which each block computes the statistics of a row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.ir.module import IRModule
from mlc_compiler.pipeline import entries, run_passes
from mlc_compiler.relax.ops.linear import dequantize, linear
from mlc_compiler.relax.ops.normalize import layer_norm, rms_norm
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_runtime.library import Library
from tests.compiler.backends.cuda.as_loops import build_as_loops
from tests.compiler.backends.cuda.products import simulated
from tests.compiler.backends.cuda.races import run
from tests.compiler.backends.cuda.scheduled import kernels, launches, rule_of


def _function(rows: int, columns: int, depth: int, centered: bool, quantized: bool) -> PrimFunc:
    x, gain = te.placeholder((1, rows, depth), "float16", "x"), te.placeholder((depth,), "float16", "gain")
    norm = layer_norm.te(x, gain, gain) if centered else rms_norm.te(x, gain)
    if not quantized:
        w = te.placeholder((columns, depth), "float16", "w")
        return te.create_prim_func([x, gain, w, linear.te(norm, w)])
    q = te.placeholder((columns, depth // 8), "uint32", "q")
    scale = te.placeholder((columns, depth // 32), "float16", "scale")
    w = dequantize.te(q, scale, bits=4, group=32, k=depth, dtype="float16")
    return te.create_prim_func([x, gain, q, scale, linear.te(norm, w)])


def _weights(
    rng: np.random.Generator, columns: int, depth: int, quantized: bool
) -> tuple[list[np.ndarray], np.ndarray]:
    if not quantized:
        w = (rng.normal(size=(columns, depth)) / depth**0.5).astype("float16")
        return [w], w
    q = rng.integers(0, 2**32, (columns, depth // 8), dtype=np.uint32)
    scale = (rng.random((columns, depth // 32)) / depth**0.5).astype("float16")
    codes = (q[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    return [q, scale], (codes.reshape(columns, depth).astype("float16") - 7) * np.repeat(scale, 32, 1)


@dataclass(frozen=True)
class Norm:
    """``linear(norm(x), w)`` with random operands; operands: x, gain and the stored weight."""

    func: PrimFunc
    operands: list[np.ndarray]
    expected: np.ndarray

    @staticmethod
    def of(rows: int, columns: int, depth: int, centered: bool, quantized: bool) -> Norm:
        rng = np.random.default_rng(3)
        x, gain = rng.normal(1, 2, (1, rows, depth)).astype("float16"), rng.normal(size=depth).astype("float16")
        stored, w = _weights(rng, columns, depth, quantized)
        wide, g = x.astype(np.float32), gain.astype(np.float32)
        if centered:
            wide = wide - wide.mean(-1, keepdims=True)
        norm = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * g + (g if centered else 0)
        expected = norm.astype("float16").astype(np.float32) @ w.astype(np.float32).T
        return Norm(_function(rows, columns, depth, centered, quantized), [x, gain, *stored], expected)

    def check(self, got: np.ndarray) -> None:
        np.testing.assert_allclose(got.astype(np.float32), self.expected, rtol=1e-2, atol=2e-2)

    def result(self) -> np.ndarray:
        return np.full(self.expected.shape, np.nan, "float16")


@pytest.mark.parametrize(
    ("rows", "depth", "centered", "quantized"), [(1, 128, False, True), (2, 96, False, False), (1, 288, True, True)]
)
def test_norm_and_product(rows: int, depth: int, centered: bool, quantized: bool) -> None:
    norm = Norm.of(rows, 24, depth, centered, quantized)
    assert (rule_of(norm.func), launches(norm.func)) == ("Matmul", 1)
    norm.check(run(kernels(norm.func), *norm.operands, norm.result())[-1])


def one_multiprocessor(arch: str) -> Target:
    return Target({"kind": "cuda", "arch": [arch], "multiprocessors": 1})


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(33, 63), st.integers(1, 40), st.booleans(), st.booleans())
def test_parts_of_the_depth(rows: int, columns: int, chunks: int, centered: bool, quantized: bool) -> None:
    """One block for each of two to four parts has all columns, and computes the activations of its part."""
    depth = 2048 + 32 * chunks if quantized else 512 + 8 * chunks
    norm = Norm.of(rows, columns, depth, centered, quantized)
    for arch in ("sm_80", "sm_90a"):
        out = norm.result()
        sums = simulated(norm.func, norm.operands, out, one_multiprocessor(arch))[-1]
        assert sums.shape[0] in (2, 3, 4)
        norm.check(out)


@pytest.mark.parametrize("descending", [False, True])
def test_parts_as_loops(descending: bool, tmp_path: Path) -> None:
    norm = Norm.of(2, 40, 2080, False, True)
    mod = run_passes(IRModule({"main": norm.func.with_attr("global_symbol", "main")}), entries())
    build_as_loops(mod, one_multiprocessor("sm_90a"), {descending: tmp_path / "lib.so"})
    out = norm.result()
    Library(tmp_path / "lib.so")["main"](*norm.operands, out)
    norm.check(out)


def test_float32_is_left_to_other_rules() -> None:
    x, w = te.placeholder((1, 64), "float32", "x"), te.placeholder((16, 64), "float32", "w")
    gain = te.placeholder((64,), "float32", "gain")
    assert rule_of(te.create_prim_func([x, gain, w, linear.te(rms_norm.te(x, gain), w)])) == "Fallback"
