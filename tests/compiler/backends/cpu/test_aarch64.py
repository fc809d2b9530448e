"""Code for AArch64, run in emulation: without dot products of bytes, with ``sdot``, with ``usdot`` (and SVE)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mlc_compiler import parse
from mlc_compiler.backends import emit_llvm
from mlc_compiler.backends.cpu.instructions.aarch64 import AARCH64_DOT_PRODUCTS
from mlc_compiler.backends.cpu.instructions.dot import DotProduct
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.driver import native_text
from mlc_compiler.ir.module import IRModule
from mlc_compiler.passes.lower_blocks import LowerBlocks
from mlc_compiler.target import Target
from tests.compiler.backends.cpu.dot_products import dots, operands
from tests.compiler.backends.cpu.emulated import emulate
from tests.compiler.relax import paged
from tests.compiler.relax.check_op import graph_of
from tests.compiler.schedules.meaning import random_arguments, run
from tests.compiler.schedules.test_matmul import Epilogue, bias_and_residual, quantized

CPUS = ("cpu:aarch64", "cpu:neoverse-n1", "cpu:neoverse-v1")
DOT_CPUS = {"dot4.neon": "cpu:neoverse-n1", "dot4.neon.i8mm": "cpu:neoverse-v1"}
RNG = np.random.default_rng(11)
MODULE = """
@I.ir_module
class Module:
    @R.function
    def elements(a: R.Tensor(("n", 37), "float32"), b: R.Tensor((37,), "float16")):
        with R.dataflow():
            c = R.tanh(R.multiply(a, R.astype(b, dtype="float32")))
            half = R.astype(R.exp(c), dtype="float16")
            R.output(c, half)
        return (c, half)

    @R.function
    def product(x: R.Tensor(("n", 40), "float32"), w: R.Tensor((56, 40), "float32")):
        with R.dataflow():
            y = R.nn.softmax(R.linear(x, w))
            z = R.sum(R.nn.silu(R.linear(x, w)), axis=[1])
            R.output(y, z)
        return (y, z)

    @R.function
    def doubles(x: R.Tensor((5,), "float64")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y
"""


@pytest.fixture(scope="module", params=CPUS)
def library(request: pytest.FixtureRequest):
    return emulate(parse(MODULE), request.param)


def test_elementwise(library):
    a, b = RNG.standard_normal((9, 37), "float32"), RNG.standard_normal(37).astype("float16")
    c, half = library["elements"](a, b)
    expected = np.tanh(a.astype("f8") * b)
    np.testing.assert_allclose(c, expected, rtol=2e-6)
    np.testing.assert_allclose(half, np.exp(expected), rtol=2**-10)


@pytest.mark.parametrize("rows", [1, 7, 20])
def test_float_products(library, rows: int):
    x, w = RNG.standard_normal((rows, 40), "float32"), RNG.standard_normal((56, 40), "float32")
    product = x.astype("f8") @ w.T.astype("f8")
    powers = np.exp(product - product.max(axis=1, keepdims=True))
    y, z = library["product"](x, w)
    np.testing.assert_allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(z, (product / (1 + np.exp(-product))).sum(axis=1), rtol=1e-5, atol=1e-4)


def test_functions_of_the_c_library(library):
    x = np.linspace(-3, 3, 5)
    np.testing.assert_allclose(library["doubles"](x), np.exp(x), rtol=1e-15)


def test_errors_have_their_texts(library):
    with pytest.raises(RuntimeError, match="doubles: takes 3 arguments; got 1"):
        library.raw("doubles")(library.context.handle)
    with pytest.raises(RuntimeError, match=r"doubles: argument x is not a tensor \(type index 1\); expected float64"):
        library.raw("doubles")(library.context.handle, 3, 4)


@pytest.mark.parametrize("target", CPUS)
def test_attention(target: str):
    batch = paged.random_batch(paged.Sizes(((0, 9), (40, 1)), heads=6, key=32, value=32, page=16))
    mod = graph_of("nn.paged_attention", (*batch.args, 1, []), {"heads": 6, "scale": 0.3}, symbolic={len(batch.q)})
    expected = paged.attention(*batch.args, 1, [], heads=6, scale=0.3)
    np.testing.assert_allclose(emulate(mod, target)["main"](*batch.args), expected, rtol=3e-6, atol=3e-6)


# -- dot products of bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", AARCH64_DOT_PRODUCTS, ids=lambda row: row.intrin.name)
def test_dot_products_are_exact(row: DotProduct):
    words, fours, expected = operands(row, RNG)
    library, out = emulate(dots(row), DOT_CPUS[row.intrin.name]), np.zeros(expected.shape, np.int32)
    library["main"](words, fours, out)
    np.testing.assert_array_equal(out, expected)
    assert library.process.traps == ({"usdot"} if row.intrin.requires == "i8mm" else set())


@pytest.mark.parametrize("row", AARCH64_DOT_PRODUCTS, ids=lambda row: row.intrin.name)
def test_a_cpu_without_the_instruction_refuses_it(row: DotProduct):
    mod = LowerBlocks().run(IRModule({"main": dots(row)}))
    with pytest.raises(CodegenError, match=f"no instruction '{row.intrin.name}': it needs {row.intrin.requires}"):
        list(emit_llvm(mod, Target("cpu:aarch64")))


@pytest.mark.parametrize(
    ("target", "instruction"), [("cpu:aarch64", None), ("cpu:neoverse-n1", "sdot"), ("cpu:neoverse-v1", "usdot")]
)
@pytest.mark.parametrize(("rows", "after"), [(1, None), (6, bias_and_residual)])
def test_products_with_4_bit_weights(target: str, instruction: str | None, rows: int, after: Epilogue | None):
    func = quantized(rows, 64, 96, after=after)
    *inputs, out = random_arguments(func, {})
    (expected,) = run(func, [*inputs, out])
    emulate(func, target, "act=16")["main"](*inputs, out)
    tolerance = 1e-6 if instruction is None else 2**-13
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    mnemonics = set(re.findall(r"\bu?sdot\b", native_text(IRModule({"main": func}), Target(target), "asm")))
    assert mnemonics == ({instruction} if instruction else set())
