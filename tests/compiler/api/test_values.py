"""Arguments and results other than plain tensors: numbers, shapes, 4-bit integers, buffers written in place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from mlc_compiler import bind_params, build, load_library, parse
from mlc_errors import MLCError
from mlc_runtime.arrays import to_tensor
from tests.compiler.api.junk import Forged

X = np.arange(4, dtype=np.float32)


def main_of(text: str) -> Any:
    return build(parse(text), num_threads=2)["main"]


@pytest.mark.parametrize(
    ("parameter", "result", "argument", "expected"),
    [
        ('x: R.Tensor(("n",), "float32")', "R.shape([n, n * 2, 3])", X, (4, 8, 3)),
        ('x: R.Tensor(("n",), "float32")', "R.prim_value(n * 2 + 1)", X, 9),
        ('s: R.Shape(["n", "m"])', "s", (5, 6), (5, 6)),
        ('s: R.Shape(["n", "m"])', "(R.prim_value(T.min(n, 3) - m % 4), (s, R.shape([])))", (5, 6), (1, ((5, 6), ()))),
        ('a: R.Prim("float32")', "(a, R.prim_value(7))", 2.5, (2.5, 7)),
        ('a: R.Prim(value="n")', "(R.prim_value(n * n), a)", 1 << 40, (1 << 80, 1 << 40)),
    ],
)
def test_numbers_and_shapes_as_results(parameter: str, result: str, argument: Any, expected: Any):
    sizes = "".join(f"\n    {name} = T.int64()" for name in "nm" if f'"{name}"' in parameter)
    main = main_of(f"@R.function\ndef main({parameter}):{sizes}\n    return {result}")
    assert main(argument) == expected


def test_shapes_beside_tensors():
    main = main_of("""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    with R.dataflow():
        y = R.add(x, x)
        R.output(y)
    return (R.prim_value(n // 3), (y, R.shape([n, 2])), x)
""")
    third, (doubled, shape), same = main(X)
    assert (third, shape) == (1, (4, 2))
    assert np.array_equal(doubled, 2 * X) and np.array_equal(same, X)


def test_floats_are_not_computed_from_sizes():
    with pytest.raises(MLCError, match="main: got a float32 computed from numbers as a result"):
        main_of('@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return R.prim_value(T.float32(1.5))')


@pytest.mark.parametrize(("dtype", "low", "high"), [("int4", -8, 7), ("uint4", 0, 15)])
def test_4_bit_integers_take_a_byte_each(dtype: str, low: int, high: int):
    main = main_of(f"""
@R.function
def main(x: R.Tensor((16,), "{dtype}")):
    with R.dataflow():
        y = R.astype(x, dtype="float32")
        z = R.astype(R.multiply(y, R.const(2.0, "float32")), dtype="{dtype}")
        R.output(y, z)
    return (y, z, x)
""")
    values = np.arange(16) + low
    for given in (values.astype(getattr(ml_dtypes, dtype)), values.astype(f"{dtype[:-1]}8")):
        y, z, x = main(given)
        assert np.array_equal(y, values)
        assert z.dtype == x.dtype == getattr(ml_dtypes, dtype)
        assert np.array_equal(z.astype(int), np.clip(2 * values, low, high))
        assert np.array_equal(x.astype(int), values)
    with pytest.raises(MLCError, match=f"argument 'x' has dtype float32; expected .* array {dtype}"):
        main(values.astype(np.float32))


SHIFT = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[3 - vi]
"""


class Frozen:
    """An array of another library whose DLPack flags declare it read-only."""

    def __init__(self, array: np.ndarray):
        array.flags.writeable = False
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_what_a_function_writes_into():
    reverse, memory = main_of(SHIFT), np.zeros(7, np.float32)
    with pytest.raises(MLCError, match="main: argument 'B' shares memory with argument 'A'; the function writes into"):
        reverse(memory[:4], memory[:4])
    with pytest.raises(MLCError, match="argument 'B' shares memory with argument 'A'"):
        reverse(torch.from_numpy(memory)[:4], memory[3:])
    with pytest.raises(MLCError, match="argument 'B' is read-only"):
        reverse(X, Frozen(np.zeros(4, np.float32)))
    for out in (np.zeros(4, np.float32), torch.zeros(4), to_tensor(np.zeros(4, np.float32))):
        reverse(Frozen(X.copy()), out)
        assert np.from_dlpack(out).tolist() == [3, 2, 1, 0]


def test_a_number_that_is_a_size_has_an_upper_bound():
    main = main_of("""
@R.function
def main(rows: R.Prim(value="n"), y: R.Tensor((3,), "float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 16}})
    n = T.int64()
    with R.dataflow():
        wide = R.exp(R.broadcast_to(y, R.shape([n, 3])))
        shares = R.nn.softmax(R.matmul(wide, R.permute_dims(wide)))
        total = R.sum(shares)
        R.output(total)
    return total
""")
    y = np.ones(3, np.float32)
    assert main(16, y) == pytest.approx(16)
    for rows in (17, 1 << 62):
        with pytest.raises(ValueError, match=f"main: n is {rows}; the library was compiled for at most 16"):
            main(rows, y)


def test_numbers_are_not_read_from_text():
    main = main_of('@R.function\ndef main(a: R.Prim("float32")):\n    return a')
    for number in (np.float16(1.5), torch.tensor(1.5), np.array(1.5)):
        assert main(number) == 1.5 and type(main(number)) is float
    assert main(2) == 2.0
    for junk in ("1.5", b"1", bytearray(b"1"), None, [1.0], 1j, 10**400, torch.ones((), device="meta")):
        with pytest.raises(MLCError, match="argument 'a' is .*; expected a number, float32"):
            main(junk)


def test_arrays_in_the_other_byte_order():
    main = main_of('@R.function\ndef main(x: R.Tensor((4,), "bfloat16")):\n    return x')
    x = X.astype(ml_dtypes.bfloat16)
    with pytest.raises(MLCError, match="argument 'x' is ndarray .its bytes are in the other order."):
        main(x.astype(x.dtype.newbyteorder(">")))
    assert np.array_equal(main(x), x)


def test_unknown_devices():
    main = main_of('@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return x')
    with pytest.raises(MLCError, match="argument 'x' is on the device 77:0; expected .* on the CPU"):
        main(Forged([4], device_type=77))
    assert main(Forged([4])).tolist() == [0, 0, 0, 0]


def test_a_parameter_without_axes_is_bound():
    mod = parse("""@R.function
def main(x: R.Tensor((4,), "float32"), a: R.Tensor((), "float32")):
    y = R.multiply(x, a)
    return y""")
    bound = build(bind_params(mod, "main", {"a": np.array(2.5, np.float32)}), num_threads=1)
    assert bound["main"](X).tolist() == [0, 2.5, 5, 7.5]


def test_times():
    lib = build(parse(SHIFT), num_threads=1)
    times = lib.time_evaluator("main", number=2, repeat=5)(X, np.zeros(4, np.float32))
    assert len(times.results) == 5
    assert 0 < times.min <= times.median <= times.max
    assert times.min <= times.mean <= times.max and times.std <= times.max - times.min
    assert lib.time_evaluator("main", number=1, repeat=1, min_repeat_ms=20)(X, np.zeros(4, np.float32)).mean < 0.02
    for counts in ({"number": 0}, {"repeat": -1}):
        with pytest.raises(MLCError, match=r"time_evaluator: \w+ is .*; expected at least 1"):
            lib.time_evaluator("main", **counts)
    with pytest.raises(MLCError, match="main got 1 arguments; expected 2"):
        lib.time_evaluator("main")(X)


def test_a_library_lists_its_requirements():
    lib = build(parse(SHIFT), "cpu:x86-64-v3", num_threads=1)
    assert load_library(lib.path).metadata["target"]["isa"] == ["avx2", "f16c", "fma", "sse4.1"]
