"""Calls of a library: arguments are checked by name, symbolic sizes are solved for, results are allocated."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlc_errors import MLCError
from mlc_runtime.arguments import ArgumentError
from mlc_runtime.arrays import aligned_empty, to_tensor, tvm_ffi
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.library import Context
from mlc_runtime.shapes import evaluate
from tests.runtime.fake_library import FakeLibrary, tensor


class Arithmetic(FakeLibrary):
    """main(a [n, 4], b [4, m]) -> a @ b [n, m], and [n * 2 + 1]: the sums of a's rows, twice, and a zero."""

    def __init__(self):
        outputs = [tensor("product", ["n", "m"]), tensor("sums", ["n * 2 + 1"])]
        inputs = [tensor("a", ["n", 4]), tensor("b", [4, "m"])]
        functions = {
            "main": {"inputs": inputs, "outputs": outputs, "workspace_bytes": 0},
            "widen": {"inputs": [tensor("x", ["n"], "bfloat16")], "outputs": [tensor("y", ["n"])]},
            "half": {"inputs": [tensor("x", ["n + n"])], "outputs": [tensor("y", ["n"])]},
            "lost": {"inputs": [tensor("x", ["n"])], "outputs": [tensor("y", ["k"])]},
        }
        super().__init__({"format": "mlc-lib-3", "functions": functions})
        self._code |= {"main": self._main, "widen": self._widen, "half": None, "lost": None}

    @staticmethod
    def _main(ctx, a, b, product, sums):
        np.matmul(a, b, out=product)
        sums[:] = [*a.sum(1), *a.sum(1), 0]

    @staticmethod
    def _widen(ctx, x, y):
        y[:] = np.from_dlpack(x).view(ml_dtypes.bfloat16).astype(np.float32)

    def raw(self, name):
        if name != "widen":
            return super().raw(name)
        return tvm_ffi.convert(lambda ctx, x, y: None if str(x.dtype) == "bfloat16" else 1 / 0)


@pytest.fixture
def lib():
    return Arithmetic()


A, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 2), np.float32)


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, tvm_ffi.from_dlpack], ids=["numpy", "torch", "ffi"])
def test_call(lib, convert):
    product, sums = lib["main"](convert(A), convert(B))
    assert np.array_equal(product, A @ B)
    assert sums.tolist() == [6, 22, 38, 6, 22, 38, 0]


def test_read_only_and_bfloat16_arguments(lib):
    frozen = A.copy()
    frozen.flags.writeable = False
    assert np.array_equal(lib["main"](frozen, B)[0], A @ B)
    assert lib["widen"](np.ones(5, ml_dtypes.bfloat16)).shape == (5,)
    with pytest.raises(ArgumentError, match="has dtype uint16; expected a contiguous, aligned array bfloat16"):
        lib["widen"](np.ones(5, np.uint16))


def unaligned() -> np.ndarray:
    return np.zeros(17 * 4, np.uint8)[1:65].view(np.float32).reshape(4, 4)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((A,), r"main got 1 arguments; expected 2 \(a, b\)"),
        ((A.astype(np.float64), B), "argument 'a' has dtype float64; expected .*float32"),
        ((A[0], B), r"argument 'a' has shape \[4\]; expected float32 \[n, 4\]"),
        ((A, A), r"argument 'b' has shape \[3, 4\]; expected float32 \[4, m\]"),
        ((A[:, ::-1], B), "argument 'a' has strides .* not contiguous"),
        ((A, B.T.copy().T), "argument 'b' has strides"),
        ((unaligned(), B), "argument 'a' begins at address .* not aligned"),
        (([[1.0]], B), r"argument 'a' is list .*; expected an array float32 \[n, 4\]"),
        ((A.astype(object), B), "argument 'a' is ndarray"),
    ],
)
def test_wrong_arguments_are_named(lib, args, message):
    with pytest.raises(ArgumentError, match=message):
        lib["main"](*args)


def test_sizes_that_the_inputs_do_not_determine(lib):
    with pytest.raises(ArgumentError, match="do not determine the size 'k' of the result 'y'"):
        lib["lost"](np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match=r"has shape \[4\]; expected float32 \[n \+ n\]"):
        lib["half"](np.zeros(4, np.float32))


def test_unknown_function_lists_the_known(lib):
    with pytest.raises(MLCError, match="no function 'mian'; it has main, widen"):
        lib["mian"]


def test_context_lives_as_long_as_its_owner(lib):
    with Context(lib, 3) as context:
        assert lib.live_contexts == {context.handle}
    assert lib.live_contexts == set()
    context = Context(lib, 2)
    del context
    assert lib.live_contexts == set()
    with pytest.raises(ArgumentError, match="threads is 0"):
        Context(lib, 0)


def test_time_evaluator_makes_number_times_repeat_calls(lib):
    timing = lib.time_evaluator("main", number=4, repeat=3)(A, B)
    assert len(timing.results) == 3 and 0 < timing.min <= timing.mean
    assert lib.calls.count("main") == 13  # one warm-up call


@given(n=st.integers(0, 99), m=st.integers(1, 99))
def test_size_expressions(n, m):
    values = {"n": n, "m": m}
    assert evaluate("n * 2 + 1", values) == n * 2 + 1
    assert evaluate("(n + 15) // 16 % m - -3", values) == (n + 15) // 16 % m + 3
    assert evaluate("T.min(n, max(m, T.int64(4)))", values) == min(n, max(m, 4))


@pytest.mark.parametrize("text", ["n ** 9", "n.real", "print(n)", "n if n else 1", "n //", "n / 2", "(" * 500, "n % 0"])
def test_other_expressions_are_refused(text):
    with pytest.raises(MLCError):
        evaluate(text, {"n": 3})


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "uint32", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_keep_type_and_address(name):
    array = aligned_empty((3, 5), dtype_of(name))
    converted = to_tensor(array)
    assert array.ctypes.data % 64 == 0
    assert (str(converted.dtype), converted.shape, converted.data_ptr()) == (name, (3, 5), array.ctypes.data)


@pytest.mark.parametrize("name", ["object", "U7", "float31", "", "V8"])
def test_unknown_data_types(name):
    with pytest.raises(MLCError, match="unknown data type"):
        dtype_of(name)
