"""Invalid arguments: calls raise exceptions that name the argument, the value and the expected value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler import Library, build, parse
from mlc_errors import MLCError
from mlc_runtime.library import Context

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, "m"), "float16"), s: R.Shape(["k"])):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        with R.dataflow():
            y = R.matmul(x, R.astype(w, dtype="float32"))
            z = R.broadcast_to(R.reshape(y, R.shape([n * m, 1])), R.shape([n * m, k]))
            R.output(z)
        return z

    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)
"""


@pytest.fixture(scope="module")
def lib() -> Library:
    return build(parse(MODULE), num_threads=2)


X, W, S = np.ones((2, 4), np.float32), np.ones((4, 3), np.float16), (2,)
GOOD = {"x": X, "w": W, "s": S}


def shifted(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array at an unaligned address."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.zeros(count + 64, np.uint8)[1 : 1 + count].view(dtype).reshape(shape)


class Raises:
    def __dlpack__(self, **_: Any) -> Any:
        raise LookupError("no tensor today")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Lies:
    def __dlpack__(self, **_: Any) -> Any:
        return 42

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


NO_ARRAY = r"is \w+ \(.*\); expected an array float32 \[n, 4\]"
BAD_X: dict[str, tuple[Any, str]] = {
    "None": (None, NO_ARRAY),
    "text": ("x", NO_ARRAY),
    "bytes": (b"\0" * 32, NO_ARRAY),
    "huge integer": (1 << 80, NO_ARRAY),
    "float": (1.5, NO_ARRAY),
    "list": ([[1.0] * 4], NO_ARRAY),
    "type": (np.ndarray, NO_ARRAY),
    "object": (object(), NO_ARRAY),
    "raises": (Raises(), "LookupError|no tensor today"),
    "lies": (Lies(), NO_ARRAY),
    "array of objects": (X.astype(object), NO_ARRAY),
    "array of text": (X.astype("U3"), NO_ARRAY),
    "array of dates": (X.astype("M8[s]"), NO_ARRAY),
    "array of records": (np.zeros((2, 4), [("a", "f4")]), NO_ARRAY),
    "other byte order": (X.astype(">f4"), NO_ARRAY),
    "float64": (X.astype(np.float64), "has dtype float64; expected .*float32"),
    "complex": (X.astype(np.complex64), "has dtype of another kind; expected .*float32"),
    "integers": (X.astype(np.int32), "has dtype int32"),
    "no axes": (np.array(1, np.float32), r"has shape \[\]; expected float32 \[n, 4\]"),
    "one axis": (X[0], r"has shape \[4\]"),
    "three axes": (X[None], r"has shape \[1, 2, 4\]"),
    "wrong size": (X[:, :3].copy(), r"has shape \[2, 3\]"),
    "transposed": (np.ones((4, 2), np.float32).T, "has strides"),
    "every second": (np.ones((4, 4), np.float32)[::2], "has strides"),
    "backwards": (X[::-1], "has strides"),
    "repeated": (np.broadcast_to(X[:1], (5, 4)), "has strides"),
    "misaligned": (shifted((2, 4), np.float32), "begins at address .* not aligned"),
    "torch, strided": (torch.ones(4, 2).T, "has strides"),
    "torch, other dtype": (torch.ones(2, 4, dtype=torch.bfloat16), "has dtype bfloat16"),
    "torch, no memory": (torch.ones(2, 4, device="meta"), NO_ARRAY),
    "torch, sparse": (torch.eye(4).to_sparse(), NO_ARRAY),
}


@pytest.mark.parametrize("case", BAD_X)
def test_arguments_that_are_not_the_tensor(lib: Library, case: str):
    value, message = BAD_X[case]
    with pytest.raises(MLCError, match=f"^main: argument 'x' .*({message})"):
        lib["main"](value, W, S)


@pytest.mark.parametrize(
    ("s", "message"),
    [
        ((1, 2), "argument 2 has 2 fields; expected 1"),
        (5, "argument 2 is int; expected a tuple of 1"),
        ("5", "argument 2 is str; expected a tuple of 1"),
        (("5",), "argument 's_0' is str; expected a number, int64"),
        ((None,), "argument 's_0' is NoneType; expected a number, int64"),
        ((1.0,), "argument 's_0' is float; expected a number, int64"),
        ((1 << 70,), "argument 's_0' is 1180591620717411303424; expected a number that fits int64"),
        ((-1,), r"result 'out0' would have shape \[6, -1\]"),
        ((1 << 40,), r"result 'out0' of shape \[6, 1099511627776\] does not fit into memory"),
        ((1 << 62,), r"result 'out0' of shape \[6, 4611686018427387904\] does not fit into memory"),
    ],
)
def test_invalid_sizes(lib: Library, s: Any, message: str):
    with pytest.raises((MLCError, MemoryError, ValueError), match=message):
        lib["main"](X, W, s)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 9])
def test_wrong_counts(lib: Library, count: int):
    with pytest.raises(MLCError, match=f"main got {count} arguments; expected 3"):
        lib["main"](*([X, W, S] * 3)[:count])


def test_sizes_that_disagree(lib: Library):
    with pytest.raises(MLCError, match="argument 'B' has dtype float16"):
        lib["double"](X[0], W[:, 0].copy())
    with pytest.raises(MLCError, match=r"argument 'B' has shape \[2\]; expected float32 \[4\]"):
        lib["double"](X[0], X[0, :2].copy())


def test_results_go_only_where_one_may_write(lib: Library):
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(MLCError, match="double: argument 'B' is read-only"):
        lib["double"](X[0], frozen)
    assert frozen.tolist() == [0] * 4


def test_unknown_functions(lib: Library):
    for name in ("mian", "", "context_create", "__tvm_ffi_main", "a" * 1000):
        with pytest.raises(MLCError, match="has no function"):
            lib[name]


# -- the library itself, behind the checks of the Python loader ------------------------------------------------------

OUT = np.zeros((6, 2), np.float32)
RAW_GOOD = (X, W, 2, OUT)
JUNK: list[Any] = [
    *(None, True, 0, -1, 1 << 62, 1.5, float("nan"), "text", b"bytes", "", (1, 2), [X], {"a": 1}, len, X.dtype),
    *(X, X[0], X.T, X.astype(np.float64), W, W.astype(np.float32), W[:, ::2], OUT[:1], OUT.astype(np.int32)),
    *(
        shifted((2, 4), np.float32),
        shifted((4, 3), np.float16),
        torch.ones(2, 4),
        torch.ones(4, 3).T,
        np.zeros((0, 4), "f4"),
    ),
]


@settings(max_examples=400)
@given(data=st.data())
def test_raw_calls_with_anything(lib: Library, data: st.DataObject):
    """Calls with arguments replaced, dropped or added raise, unless all arguments are valid."""
    args = list(RAW_GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        args[data.draw(st.integers(0, 3))] = data.draw(st.sampled_from(JUNK))
    if data.draw(st.booleans()):
        args = args[: data.draw(st.integers(0, 4))] + data.draw(st.lists(st.sampled_from(JUNK), max_size=3))
    context = data.draw(st.sampled_from([lib.context.handle] * 8 + [0, -1, 7, 1 << 40, None, "c", 1.5, X]))
    fits = len(args) == 4 and context == lib.context.handle if isinstance(context, int) else False
    try:
        lib.raw("main")(context, *args)
    except (TypeError, ValueError, RuntimeError, OverflowError, BufferError) as error:
        assert str(error)
    else:
        assert fits
        x, w, k, out = args
        assert np.allclose(out, np.repeat((np.asarray(x) @ np.asarray(w, np.float32)).reshape(-1, 1), k, 1))


def stale(lib: Library) -> list[int]:
    """Handles of freed contexts, and integers that are no handles."""
    contexts = [Context(lib, 1) for _ in range(3)]
    handles = [c.handle for c in contexts]
    for context in contexts:
        context.close()
    return [*handles, handles[0] + (1 << 16), handles[0] & 0xFFFF, (1 << 63) - 1, -(1 << 63)]


def test_freed_contexts(lib: Library):
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    for handle in stale(lib):
        for call in (lambda h: lib.raw("double")(h, x, out), lib.raw("context_destroy")):
            with pytest.raises(TypeError, match="the first argument is not a context that is open"):
                call(handle)
    assert out.tolist() == [0] * 4
    lib["double"](x, out)
    assert out.tolist() == [2] * 4


@pytest.mark.parametrize("threads", [0, -1, 257, 1 << 40, 1.5, None, "2", True, X])
def test_teams_of_impossible_size(lib: Library, threads: Any):
    with pytest.raises((TypeError, ValueError), match="num_threads must be an integer from 1 to 256"):
        lib.raw("context_create")(threads)


def test_many_contexts_come_and_go(lib: Library):
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    handles = [lib.raw("context_create")(1) for _ in range(1000)]
    assert len(set(handles)) == 1000
    for handle in handles[::97]:
        lib.raw("double")(handle, x, out)
    with pytest.raises(RuntimeError, match="the system refused memory or threads"):
        handles += [lib.raw("context_create")(1) for _ in range(1024)]
    for handle in handles:
        lib.raw("context_destroy")(handle)
    for _ in range(300):
        with Context(lib, 2) as context:
            lib.raw("double")(context.handle, x, out)
    assert out.tolist() == [2] * 4


def test_concurrent_calls_return_or_raise(lib: Library):
    """A concurrent call of the same context raises; it never gives a wrong result."""
    results: list[str] = []

    def work(call: Callable[..., Any], context: int) -> None:
        x, out = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
        for _ in range(300):
            try:
                call(context, x, out)
                results.append("right" if np.array_equal(out, 2 * x) else "wrong")
            except RuntimeError as error:
                results.append("busy" if "is in use" in str(error) else str(error))

    from threading import Thread

    with Context(lib, 1) as context:
        threads = [Thread(target=work, args=(lib.raw("double"), context.handle)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(results) <= {"right", "busy"} and results.count("right") > 0 and len(results) == 1200
