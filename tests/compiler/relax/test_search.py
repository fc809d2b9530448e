import numpy as np
import pytest

from mlc_compiler.relax.ops import OperatorError
from tests.compiler.relax.check_op import check_op, run_op

RNG = np.random.default_rng(4)


def reference(k, axis=-1, largest=True, dtype="int32"):
    def topk(x):
        count = k if k > 0 else x.shape[axis]
        order = np.argsort(-x.astype(np.float64) if largest else x, axis=axis, kind="stable")
        order = np.take(order, range(count), axis)
        return np.take_along_axis(x, order, axis), order.astype(dtype)

    return topk


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
@pytest.mark.parametrize(("k", "axis", "largest"), [(1, -1, True), (3, -1, True), (2, 0, False), (-1, 1, True)])
def test_topk(dtype, k, axis, largest):
    x = RNG.integers(-9, 9, (4, 7)).astype(dtype)  # contains equal elements
    check_op("topk", x, reference=reference(k, axis, largest), tolerance=0, k=k, axis=axis, largest=largest)


def test_topk_of_symbolic_rows_and_of_infinities():
    x = RNG.standard_normal((5, 8)).astype("float32")
    x[:, 3], x[0, 4] = -np.inf, np.inf
    check_op("topk", x, reference=reference(3), tolerance=0, symbolic=(5,), k=3)
    check_op("topk", x, reference=reference(8, dtype="int64"), tolerance=0, k=8, dtype="int64")


def test_topk_of_a_symbolic_axis_that_is_short():
    x = np.array([[3, 1], [2, 4]], "float32")
    values, indices = run_op("topk", x, k=3, symbolic=(2,))
    assert values.tolist() == [[3, 1, -np.inf], [4, 2, -np.inf]] and indices.tolist() == [[0, 1, -1], [1, 0, -1]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 17), -1), ((9, 2), 0), ((1,), 0), ((8,), 0), ((2, 0), 1)])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting(dtype, shape, axis, descending):
    x = RNG.integers(-5, 5, shape).astype(dtype)
    order = np.argsort(-x.astype("float64") if descending else x, axis=axis, kind="stable")
    attrs = {"axis": axis, "descending": descending}
    check_op("argsort", x, reference=lambda _: order.astype("int64"), dtype="int64", **attrs)
    check_op("sort", x, reference=lambda x: np.take_along_axis(x, order, axis), **attrs)


def test_sorting_of_symbolic_axes():
    x = RNG.standard_normal((5, 6)).astype("float32")
    check_op("sort", x, reference=lambda x: np.sort(x, 0), axis=0, symbolic=(5, 6))
    check_op("argsort", x, reference=lambda x: np.argsort(x, 1).astype("int32"), symbolic=(5, 6))


def test_one_result_of_topk():
    x = RNG.standard_normal((2, 6)).astype("float32")
    values, indices = reference(2)(x)
    assert np.array_equal(run_op("topk", x, k=2, ret_type="values"), values)
    assert np.array_equal(run_op("topk", x, k=2, ret_type="indices"), indices)


def test_arguments_of_topk():
    x = RNG.standard_normal((2, 6)).astype("float32")
    with pytest.raises(OperatorError, match="k: got 7; expected at most 6, the size of axis 1"):
        run_op("topk", x, k=7)
    with pytest.raises(OperatorError, match="ret_type: got 'all'; expected one of both, values, indices"):
        run_op("topk", x, ret_type="all")
