"""The scheduled matmuls of ``benchmarks/`` against numpy, for this CPU and for CPUs without VNNI or AVX."""

from __future__ import annotations

import int4_matmul
import numpy as np
import pytest
from float_matmul import scheduled_product_relu, tiled_product

from mlc_compiler import build, emit_asm
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import PrimFunc

TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:generic")


def product(func: PrimFunc, size: int, to: str) -> tuple[np.ndarray, np.ndarray]:
    """The compiled matmul's result and numpy's, for integers in float32, where both are exact."""
    a, b = (np.random.default_rng(i).integers(-4, 5, (size, size)).astype(np.float32) for i in range(2))
    c = np.full((size, size), np.nan, np.float32)
    build(func, to, num_threads=1)["main"](a, b, c)
    return c, a @ b


@pytest.mark.parametrize("to", TARGETS)
def test_product_relu(to: str) -> None:
    got, expected = product(scheduled_product_relu(32), 32, to)
    np.testing.assert_array_equal(got, np.maximum(expected, 0))


@pytest.mark.parametrize("to", TARGETS)
def test_tiled_product(to: str) -> None:
    np.testing.assert_array_equal(*product(tiled_product(64, 8, 16), 64, to))


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("to", TARGETS)
def test_int4_product(to: str, rows: int) -> None:
    operands = int4_matmul.operands(rows, 32, 128)
    func = int4_matmul.schedule(int4_matmul.definition(rows, 32, 128), rows, Target(to)).func
    build(func, to, num_threads=1)["main"](*operands.arrays, operands.out)
    expected = int4_matmul.reference(operands)
    np.testing.assert_allclose(operands.out, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("to", "has_dot"), [("cpu:icelake-server", True), ("cpu:x86-64-v3", False)])
def test_int4_product_uses_the_dot_instruction_where_there_is_one(to: str, has_dot: bool) -> None:
    func = int4_matmul.schedule(int4_matmul.definition(8, 32, 128), 8, Target(to)).func
    assert ("vpdpbusd" in emit_asm(func, to)) is has_dot
