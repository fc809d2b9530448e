"""Compiled functions agree with numpy for all sizes, including empty tensors."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import Library, build, parse

SOURCE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor((20, 12), "float32"), y: R.Tensor(("n", 12), "float32")):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            rows = R.nn.softmax(x, axis=-1)
            sums = R.sum(rows, axis=[1])
            greatest = R.max(x, axis=[0])
            inner = R.matmul(R.permute_dims(rows, axes=(1, 0)), rows)
            mean = R.mean(x)
            columns = R.nn.softmax(R.matmul(x, R.permute_dims(x, axes=(1, 0))), axis=0)
            product = R.add(R.linear(y, w), R.const(1.0, "float32"))
            R.output(rows, sums, greatest, inner, mean, columns, product)
        return (rows, sums, greatest, inner, mean, columns, product)
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return build(parse(SOURCE), num_threads=2)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-1e30))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize(("n", "m"), [(3, 7), (1, 1), (13, 33), (0, 5), (4, 0), (0, 0)])
def test_results_are_those_of_numpy(n: int, m: int, library: Library) -> None:
    rng = np.random.default_rng(0)
    x, w, y = (rng.standard_normal(s, np.float32) for s in ((n, m), (20, 12), (n, 12)))
    rows = softmax(x, -1)
    mean = x.mean() if x.size else np.float32(np.nan)
    expected = [rows, rows.sum(1), x.max(0, initial=-np.inf), rows.T @ rows, mean, softmax(x @ x.T, 0), y @ w.T + 1]
    for got, want in zip(library["main"](x, w, y), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)


PRODUCT = """
@R.function
def main(x: R.Tensor(("n", 0), "float32"), w: R.Tensor((20, 0), "float32"), b: R.Tensor((20,), "float32")):
    with R.dataflow():
        y = R.linear(x, w, b)
        R.output(y)
    return y
"""


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:x86-64"])
def test_products_over_nothing_are_zero(target: str) -> None:
    x, w, b = (np.ones(s, np.float32) for s in ((3, 0), (20, 0), (20,)))
    np.testing.assert_array_equal(build(parse(PRODUCT), target)["main"](x, w, b), np.ones((3, 20), np.float32))
