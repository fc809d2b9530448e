"""Functions registered from Python and called by compiled code: arguments share memory, exceptions propagate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from mlc_compiler import Library, build, parse, register_func, structural_equal, to_script
from mlc_errors import MLCError
from mlc_runtime.arrays import tvm_ffi
from mlc_runtime.library import Context

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4,), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.exp(x)
            flat = R.reshape(y, R.shape([n * 4]))
            numbers = R.const([1, 2], "int64")
            z = R.call_dps_packed("test.api.f", (flat, w, numbers), out_sinfo=R.Tensor((n, 2), "float32"))
            s = R.add(z, R.const(1.0, "float32"))
            R.output(s)
        return s

    @R.function
    def several(x: R.Tensor(("n",), "float16")):
        n = T.int64()
        with R.dataflow():
            both = R.call_dps_packed(
                "test.api.g",
                (x,),
                out_sinfo=[R.Tensor((n,), "float16"), R.Tensor((), "bool")],
                tir_vars=R.shape([n + 1]),
            )
            y = R.add(both[0], x)
            R.output(y, both)
        return (y, both[1])
"""


@pytest.fixture
def registered() -> Iterator[Callable[..., Any]]:
    """Registers functions for one test."""
    names = []

    def register(name: str, func: Callable[..., Any]) -> None:
        names.append(name)
        register_func(name, func, override=True)

    yield register
    for name in names:
        tvm_ffi.remove_global_func(name)


@pytest.fixture(scope="module", params=[1, 2], ids=["1 thread", "2 threads"])
def lib(request: pytest.FixtureRequest) -> Library:
    return build(parse(MODULE), num_threads=request.param)


X, W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.arange(4, dtype=np.float32)


def halves(flat: np.ndarray, w: np.ndarray) -> np.ndarray:
    products = (flat.reshape(-1, 4) * w).reshape(-1, 2, 2)
    return products.sum(-1)


def test_arguments_are_tensors_over_the_callers_memory(lib: Library, registered: Callable[..., Any]):
    seen = []

    def f(flat: Any, w: Any, numbers: Any, out: Any) -> None:
        seen.append((flat.shape, w.shape, numbers.shape, out.shape, w.data_ptr()))
        result = np.from_dlpack(out)
        result[...] = halves(np.from_dlpack(flat), np.from_dlpack(w))
        assert np.from_dlpack(numbers).tolist() == [1, 2]

    registered("test.api.f", f)
    np.testing.assert_allclose(lib["main"](X, W), halves(np.exp(X), W) + 1, rtol=1e-6)
    assert seen == [((12,), (4,), (2,), (3, 2), W.ctypes.data)]
    assert lib["main"](X[:0], W).shape == (0, 2)


def test_torch_functions_write_into_results(lib: Library, registered: Callable[..., Any]):
    def f(flat: Any, w: Any, numbers: Any, out: Any) -> Any:
        x, v, result = map(torch.from_dlpack, (flat, w, out))
        torch.sum((x.view(-1, 4) * v).view(-1, 2, 2), dim=-1, out=result)
        return out  # the return value is ignored

    registered("test.api.f", f)
    for _ in range(50):
        result = lib["main"](torch.from_numpy(X), torch.from_numpy(W))
    np.testing.assert_allclose(result, halves(np.exp(X), W) + 1, rtol=1e-6)


def test_several_results_and_numbers(lib: Library, registered: Callable[..., Any]):
    def g(x: Any, doubled: Any, flag: Any, number: int) -> None:
        np.from_dlpack(doubled)[...] = 2 * np.from_dlpack(x)
        np.from_dlpack(flag)[...] = number == 6

    registered("test.api.g", g)
    x = np.arange(5, dtype=np.float16)
    tripled, flag = lib["several"](x)
    assert np.array_equal(tripled, 3 * x) and tripled.dtype == np.float16 and flag.item() is True


class Odd(Exception):
    """An exception that is not built in."""


@pytest.mark.parametrize(("error", "kind"), [(KeyError("k"), KeyError), (Odd("o"), RuntimeError)])
def test_what_the_function_raises_is_raised(
    lib: Library, registered: Callable[..., Any], error: Exception, kind: type[Exception]
):
    def f(*_: Any) -> None:
        raise error

    registered("test.api.f", f)
    for _ in range(3):
        with pytest.raises(kind, match=str(error)):
            lib["main"](X, W)
    registered("test.api.f", lambda flat, w, numbers, out: np.from_dlpack(out).fill(7))
    assert lib["main"](X, W).tolist() == [[8, 8]] * 3


def test_the_second_of_two_calls_fails(registered: Callable[..., Any]):
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.call_dps_packed("test.api.first", (x,), out_sinfo=R.Tensor((8,), "float32"))
            b = R.call_dps_packed("test.api.second", (a,), out_sinfo=R.Tensor((8,), "float32"))
            c = R.exp(b)
            R.output(c)
        return c
"""

    def copy(x: Any, out: Any) -> None:
        np.from_dlpack(out)[...] = np.from_dlpack(x)

    def fails(x: Any, out: Any) -> None:
        raise ValueError(f"the sum is {np.from_dlpack(x).sum():.0f}")

    registered("test.api.first", copy)
    registered("test.api.second", fails)
    lib = build(parse(text), num_threads=3)
    for _ in range(200):
        with pytest.raises(ValueError, match="the sum is 8"):
            lib["main"](np.ones(8, np.float32))


def test_an_unregistered_function(lib: Library):
    with pytest.raises(ValueError, match="no function is registered as test.api.g; see register_func"):
        lib["several"](np.ones(3, np.float16))


def test_a_function_cannot_use_the_context_that_calls_it(lib: Library, registered: Callable[..., Any]):
    messages = []

    def f(flat: Any, w: Any, numbers: Any, out: Any) -> None:
        handle = lib.context.handle
        for attempt in (lambda: lib["main"](X, W), lambda: lib.raw("context_destroy")(handle)):
            with pytest.raises(RuntimeError) as error:
                attempt()
            messages.append(str(error.value))
        with Context(lib, 1) as other, pytest.raises(ValueError, match="no function is registered as test.api.g"):
            half = np.ones(1, np.float16)
            lib.raw("several")(other.handle, half, half.copy(), np.zeros((), np.bool_))
        np.from_dlpack(out).fill(0)

    registered("test.api.f", f)
    assert lib["main"](X, W).tolist() == [[1, 1]] * 3
    assert "the context is in use by a call that has not ended" in messages[0]
    assert messages[1].startswith("context_destroy: the context is in use")


def test_registration():
    @register_func("test.api.decorated")
    def decorated(x: Any) -> None: ...

    try:
        with pytest.raises((ValueError, RuntimeError), match="test.api.decorated"):
            register_func("test.api.decorated", decorated)
        register_func("test.api.decorated", decorated, override=True)
    finally:
        tvm_ffi.remove_global_func("test.api.decorated")


RETURNING = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        y: R.Tensor((n, 2), "float32") = R.call_packed("test.api.r", x, sinfo_args=R.Tensor((n, 2), "float32"))
        z = R.add(y, y)
        return z

    @R.function
    def two(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            both = R.call_pure_packed(
                "test.api.two", x, sinfo_args=R.Tuple(R.Tensor((n,), "float32"), R.Tensor((), "int64"))
            )
            first = both[0]
            second = both[1]
            R.output(first, second)
        return (second, first)
"""


def test_results_of_registered_functions(registered: Callable[..., Any]) -> None:
    mod = parse(RETURNING)
    assert "R.call_pure_packed(" in to_script(mod) and structural_equal(parse(to_script(mod)), mod)
    registered("test.api.r", lambda x: torch.from_dlpack(x)[:, :2] * 3)
    registered("test.api.two", lambda x: (np.from_dlpack(x).sum(1), np.array(7)))
    x = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    lib = build(mod)
    np.testing.assert_array_equal(lib["main"](x), x[:, :2] * 6)
    second, first = lib["two"](x)
    assert second == 7
    np.testing.assert_allclose(first, x.sum(1), rtol=1e-6)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: np.zeros((3, 3), np.float32), r"test.api.r returned float32 \[3, 3\]; expected float32 \[3, 2\]"),
        (lambda x: np.zeros((3, 2)), r"returned float64 \[3, 2\]"),
        (lambda x: (), "returned 0 values; expected 1"),
    ],
)
def test_wrong_results_of_registered_functions(
    registered: Callable[..., Any], returned: Callable[..., Any], message: str
) -> None:
    registered("test.api.r", returned)
    with pytest.raises(ValueError, match=message):
        build(parse(RETURNING))["main"](np.ones((3, 4), np.float32))


EFFECT = """
@R.function(pure={pure})
def main(x: R.Tensor((4,), "float32")):
    {begin}
        _ = R.call_packed("test.api.effect", x, sinfo_args=R.Tuple())
        y = R.exp(x)
        {end}
    return y
"""


@pytest.mark.parametrize("pure", [True, False])
def test_effects_have_no_place_in_dataflow_blocks(pure: bool) -> None:
    text = EFFECT.format(pure=pure, begin="with R.dataflow():", end="R.output(y)")
    with pytest.raises(MLCError, match="'test.api.effect', which may have side effects, is called in a dataflow block"):
        build(parse(text))


def test_effects_have_no_place_in_pure_functions(registered: Callable[..., Any]) -> None:
    kept = [line for line in EFFECT.splitlines() if "{begin}" not in line and "{end}" not in line]
    text = "\n".join(kept).replace("        ", "    ")
    with pytest.raises(MLCError, match="'test.api.effect', which may have side effects, is called in a pure function"):
        build(parse(text.format(pure=True)))
    seen = []
    registered("test.api.effect", lambda x: seen.append(np.from_dlpack(x).copy()))
    build(parse(text.format(pure=False)))["main"](np.ones(4, np.float32))
    assert [list(s) for s in seen] == [[1, 1, 1, 1]]
