"""Signatures of compiled functions: parameters, results, sizes, tensor functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mlc_compiler import Library, build, load_library, parse
from mlc_compiler.passes.inline_calls import InlineError
from mlc_errors import MLCError

HEADER = "@I.ir_module\nclass Module:\n"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def built(functions: str, threads: int = 2) -> Library:
    return build(parse(HEADER + functions), num_threads=threads)


RETURNS = """
    @R.function
    def given(x: R.Tensor(("n", 3), "float32")):
        return x

    @R.function
    def constants(x: R.Tensor(("n", 3), "float32")):
        return (R.const([1.5, 2.5], "float32"), R.const(3, "int64"), R.const(True, "bool"))

    @R.function
    def reshaped(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.reshape(x, R.shape([3, 2]))
            R.output(y)
        return y

    @R.function
    def nested(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.add(x, x)
            z = R.reshape(y, R.shape([n * 3]))
            R.output(y, z)
        return (y, (z, y), x, x)

    @R.function
    def nothing(x: R.Tensor(("n", 3), "float32")):
        return R.tuple()

    @R.function
    def no_parameters():
        with R.dataflow():
            y = R.full(R.shape([2, 2]), R.const(2.5, "float32"), dtype="float32")
            R.output(y)
        return y

    @R.function
    def scalars(x: R.Tensor((), "float32"), y: R.Tensor((), "float32")):
        with R.dataflow():
            z = R.add(x, y)
            R.output(z)
        return z

    @R.function
    def parts(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            both = R.split(x, 2, axis=1)
            R.output(both)
        return both
"""


@pytest.fixture(scope="module")
def returns() -> Library:
    return built(RETURNS)


def test_a_returned_argument_is_a_copy(returns: Library):
    result = returns["given"](X)
    assert np.array_equal(result, X) and not np.shares_memory(result, X)
    assert np.array_equal(returns["reshaped"](X), X.reshape(3, 2))


def test_returned_constants_keep_their_types(returns: Library):
    numbers, integer, truth = returns["constants"](X)
    assert numbers.tolist() == [1.5, 2.5]
    assert (integer.dtype, integer.shape, integer.item()) == (np.int64, (), 3)
    assert (truth.dtype, truth.item()) == (np.bool_, True)


def test_tuples_are_nested_as_written_and_nothing_is_shared(returns: Library):
    y, (z, again), first, second = returns["nested"](X)
    assert np.array_equal(y, 2 * X) and np.array_equal(again, 2 * X) and np.array_equal(z, 2 * X.ravel())
    assert np.array_equal(first, X) and np.array_equal(second, X)
    arrays = [y, z, again, first, second, X]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_functions_without_results_parameters_or_axes(returns: Library):
    assert returns["nothing"](X) is None
    assert returns["no_parameters"]().tolist() == [[2.5, 2.5], [2.5, 2.5]]
    total = returns["scalars"](np.array(2, np.float32), np.array(3, np.float32))
    assert total.shape == () and total.item() == 5.0


def test_an_operator_with_several_results(returns: Library):
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    left, right = returns["parts"](x)
    assert np.array_equal(left, x[:, :3]) and np.array_equal(right, x[:, 3:])


PARAMETERS = """
    @R.function
    def tuples(
        p: R.Tuple(R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((3,), "float32"))), k: R.Tensor((3,), "float32")
    ):
        with R.dataflow():
            a = p[0]
            b = p[1][0]
            y = R.add(R.add(a, b), k)
            R.output(y)
        return (y, p)

    @R.function
    def shape(x: R.Tensor((6, 1), "float32"), s: R.Shape(["n", "m"])):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.broadcast_to(x, R.shape([6, n * m]))
            R.output(y)
        return y

    @R.function
    def number(x: R.Tensor((1, 3), "float32"), rows: R.Prim(value="n")):
        n = T.int64()
        with R.dataflow():
            y = R.broadcast_to(x, R.shape([n, 3]))
            R.output(y)
        return y

    @R.function
    def any_shape(x: R.Tensor(dtype="float32", ndim=2), y: R.Tensor((3, "k"), "float32")):
        n = T.int64()
        k = T.int64()
        with R.dataflow():
            square = R.match_cast(x, R.Tensor((n, n), "float32"))
            z = R.matmul(square, y)
            R.output(z)
        return z
"""


@pytest.fixture(scope="module")
def parameters() -> Library:
    return built(PARAMETERS)


def test_tuple_parameters(parameters: Library):
    ones, tens = np.ones(3, np.float32), np.full(3, 10, np.float32)
    y, (a, (b,)) = parameters["tuples"]((X, [torch.ones(3)]), tens)
    assert np.array_equal(y, X + 11) and np.array_equal(a, X) and np.array_equal(b, ones)
    with pytest.raises(MLCError, match=r"tuples: argument 0 has 1 fields; expected 2"):
        parameters["tuples"]((X,), tens)
    with pytest.raises(MLCError, match=r"tuples: argument 0\[1\] is ndarray; expected a tuple of 1"):
        parameters["tuples"]((X, ones), tens)


def test_shapes_and_numbers_as_parameters(parameters: Library):
    column = np.arange(6, dtype=np.float32)[:, None]
    assert np.array_equal(parameters["shape"](column, (2, 3)), np.repeat(column, 6, 1))
    assert np.array_equal(parameters["number"](X[:1], 4), np.repeat(X[:1], 4, 0))
    with pytest.raises(MLCError, match="number: argument 'rows' is float; expected a number, int64"):
        parameters["number"](X[:1], 1.5)
    with pytest.raises(MLCError, match=r"result 'out0' would have shape \[-1, 3\]"):
        parameters["number"](X[:1], -1)


def test_sizes_that_a_function_matches(parameters: Library):
    y = np.ones((3, 2), np.float32)
    assert np.array_equal(parameters["any_shape"](np.eye(3, dtype=np.float32), y), y)
    with pytest.raises(ValueError, match="any_shape: square on axis 1 has size 4; expected 3"):
        parameters["any_shape"](np.ones((3, 4), np.float32), y)
    with pytest.raises(ValueError, match="any_shape: an operand of matmul has size 2; expected 3"):
        parameters["any_shape"](np.eye(2, dtype=np.float32), y)


INPLACE = """
    @T.prim_func(private=True)
    def increment(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            with T.block("A"):
                vi = T.axis.spatial(n, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")):
        cls = Module
        n = T.int64()
        y = R.call_tir_inplace(cls.increment, (x,), inplace_indices=[0], out_sinfo=R.Tensor((n,), "float32"))
        z = R.multiply(y, y)
        return (z, y)
"""


def test_a_result_written_in_place_is_the_argument_itself():
    main = built(INPLACE)["main"]
    x = np.arange(5, dtype=np.float32)
    squares, y = main(x)
    assert y is x and x.tolist() == [1, 2, 3, 4, 5] and squares.tolist() == [1, 4, 9, 16, 25]
    x.flags.writeable = False
    with pytest.raises(MLCError, match="argument 'x' is read-only; the function writes into it"):
        main(x)


CALLS = """
    @R.function(private=True)
    def twice(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor(("m", 3), "float32")) -> R.Tensor(("m", 3), "float32"):
        cls = Module
        m = T.int64()
        with R.dataflow():
            y: R.Tensor((m, 3), "float32") = cls.twice(x)
            z: R.Tensor((m, 3), "float32") = cls.twice(y)
            R.output(z)
        return z
"""


def test_graph_functions_call_graph_functions():
    lib = built(CALLS)
    assert list(lib.functions) == ["main"]
    assert np.array_equal(lib["main"](X), 4 * X)


def test_a_called_function_squeezes_what_it_would_alone():
    lib = built("""
    @R.function(private=True)
    def squeezed(x: R.Tensor(("n", 1), "float32")) -> R.Tensor(("n",), "float32"):
        with R.dataflow():
            y = R.squeeze(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((1, 1), "float32")) -> R.Tensor((1,), "float32"):
        cls = Module
        with R.dataflow():
            y: R.Tensor((1,), "float32") = cls.squeezed(x)
            R.output(y)
        return y
""")
    assert lib["main"](X[:1, :1].copy()).tolist() == X[0, :1].tolist()


def test_recursion_is_refused():
    recursive = CALLS.replace("cls.twice(x)", "cls.main(x)")
    with pytest.raises(InlineError, match="main calls itself: main -> main"):
        built(recursive)


KERNELS = """
@I.ir_module
class Module:
    @T.prim_func
    def scale(a: T.handle, factor: T.float32, offset: T.int32, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * factor + T.Cast("float32", offset)

    @T.prim_func(private=True)
    def swap(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
        held = T.alloc_buffer((3,), "float32")
        for i in range(3):
            with T.block("held"):
                vi = T.axis.spatial(3, i)
                held[vi] = A[vi]
        for i in range(3):
            with T.block("A"):
                vi = T.axis.spatial(3, i)
                A[vi] = B[vi]
        for i in range(3):
            with T.block("B"):
                vi = T.axis.spatial(3, i)
                B[vi] = held[vi]
"""


def test_a_module_of_tensor_functions_writes_into_arguments():
    lib = build(parse(KERNELS))
    a, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    assert lib["scale"](a, 2.5, 3, b) is None
    assert np.array_equal(b, a * 2.5 + 3)
    x, y = np.ones(3, np.float32), torch.zeros(3)
    lib["swap"](x, y)
    assert x.tolist() == [0, 0, 0] and y.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="argument B has size 4 on axis 0; expected 5|argument 'B' has shape"):
        lib["scale"](a, 2.5, 3, b[:4])
    with pytest.raises(ValueError, match="argument offset is 2147483648; expected -2147483648 to 2147483647"):
        lib["scale"](a, 2.5, 1 << 31, b)


def test_beside_graph_functions_only_public_tensor_functions_are_callable():
    main = """
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = Module
        y = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((3,), "float32"))
        return y
"""
    kernels = KERNELS.replace("factor: T.float32, offset: T.int32, ", "")
    kernels = kernels.replace('factor + T.Cast("float32", offset)', "T.float32(2)")
    lib = build(parse(kernels + main))
    assert sorted(lib.functions) == ["main", "scale"]
    x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    lib["scale"](x, y)
    assert np.array_equal(lib["main"](x), 2 * x) and np.array_equal(y, 2 * x)


def test_a_single_function_is_a_module():
    text = KERNELS[KERNELS.index("    @T.prim_func\n") : KERNELS.index("    @T.prim_func(private")]
    mod = parse("\n".join(line[4:] for line in text.splitlines()))
    assert list(mod) == ["scale"]
    a, b = np.ones(3, np.float32), np.zeros(3, np.float32)
    build(mod["scale"])["scale"](a, 2.0, 1, b)
    assert b.tolist() == [3, 3, 3]


DYNAMIC = """
    @R.function
    def main(a: R.Tensor(("n", 40), "float32"), b: R.Tensor((40, "m"), "float32")):
        with R.dataflow():
            scores = R.matmul(a, b)
            shares = R.nn.softmax(scores, axis=-1)
            again = R.matmul(shares, R.permute_dims(shares))
            result = R.nn.softmax(R.exp(again), axis=-1)
            total = R.sum(again, axis=[0])
            R.output(result, total)
        return (result, total)
"""


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_sizes_without_bounds_grow_and_shrink(threads: int):
    main = built(DYNAMIC, threads)["main"]
    rng = np.random.default_rng(0)
    for n, m in ((3, 5), (70, 33), (1, 1), (0, 4), (40, 2), (129, 65)):
        a, b = rng.random((n, 40), np.float32) - 0.5, rng.random((40, m), np.float32) - 0.5
        shares = softmax(a @ b)
        again = shares @ shares.T
        result, total = main(a, b)
        np.testing.assert_allclose(result, softmax(np.exp(again)) if n else again, rtol=2e-6)
        np.testing.assert_allclose(total, again.sum(0), rtol=1e-5)


def test_a_workspace_larger_than_memory():
    text = """
    @R.function
    def main(x: R.Tensor((1, 3), "float32"), rows: R.Prim(value="n"), y: R.Tensor((3, 2), "float32")):
        n = T.int64()
        with R.dataflow():
            wide = R.broadcast_to(x, R.shape([n, 3]))
            total = R.sum(R.matmul(R.exp(R.matmul(wide, y)), R.permute_dims(y)), axis=[0])
            R.output(total)
        return total
"""
    main = built(text)["main"]
    y = np.ones((3, 2), np.float32)
    np.testing.assert_allclose(main(X[:1], 5, y), np.full(3, 10 * np.exp(3.0)), rtol=1e-5)
    for rows in (1 << 44, 1 << 60, (1 << 63) - 1):
        with pytest.raises(RuntimeError, match="main: no memory for a workspace of"):
            main(X[:1], rows, y)
    for rows in (-1, -(1 << 63)):
        with pytest.raises(ValueError, match=f"main: n is {rows}; expected at least 0"):
            main(X[:1], rows, y)
    np.testing.assert_allclose(main(X[:1], 2, y), np.full(3, 4 * np.exp(3.0)), rtol=1e-5)


def test_exported_libraries_are_the_same_library(tmp_path: Path, returns: Library):
    path = returns.export_library(tmp_path / "copy.so")
    assert path.read_bytes() == returns.path.read_bytes()
    copy = load_library(path, num_threads=1)
    assert np.array_equal(copy["given"](X), X)
    assert copy.metadata == returns.metadata
    with pytest.raises(MLCError, match="cannot write the library: No such file or directory"):
        returns.export_library(tmp_path / "none" / "lib.so")


def test_time_evaluator(returns: Library):
    timing = returns.time_evaluator("given", number=3, repeat=4)(X)
    assert len(timing.results) == 4 and 0 < timing.min <= timing.mean
