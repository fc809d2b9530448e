"""Calls with random, mostly invalid arguments: each returns the expected result or raises a documented exception.

    python -m tests.compiler.api.garbage [--seed N] [--count N]

prints the number of a case before it is made, so that the last line names the one that ended the process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch

from mlc_compiler import Library, build, parse
from mlc_errors import MLCError
from mlc_runtime.arrays import as_numpy
from mlc_runtime.dtypes import DTYPES
from tests.compiler.api.junk import array, change

HEAD = """
@I.ir_module
class Module:
    @R.function
    def fixed(x: R.Tensor((3, 4), "float32")):
        y = R.add(x, x)
        return y

    @R.function
    def bounded(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n",), "int32")):
        R.func_attr({"tir_var_upper_bound": {"n": 4}})
        with R.dataflow():
            z = R.nn.softmax(R.exp(R.add(x, x)))
            w = R.sum(z, axis=[0])
            R.output(w)
        return w

    @R.function
    def product(a: R.Tensor(("n", "m"), "float32"), b: R.Tensor(("m", "k"), "float16"), c: R.Tensor(("n*k",), "int32")):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        with R.dataflow():
            d = R.matmul(a, R.astype(b, dtype="float32"))
            e = R.add(R.reshape(d, R.shape([n * k])), R.astype(c, dtype="float32"))
            R.output(e)
        return (e, R.shape([n, m, k]))

    @R.function
    def packed(x: R.Tensor(("n",), "float32"), w: R.Tuple(R.Tensor((3,), "int8"), R.Tuple(R.Tensor(("n",), "bool")))):
        with R.dataflow():
            inner = w[1]
            y = R.where(inner[0], x, R.multiply(x, R.const(2.0, "float32")))
            z = R.astype(w[0], dtype="float32")
            R.output(y, z)
        return (y, z)

    @R.function
    def numbers(f: R.Prim("float32"), i: R.Prim("int32"), rows: R.Prim(value="n"), s: R.Shape(["p", "q"])):
        n = T.int64()
        p = T.int64()
        q = T.int64()
        with R.dataflow():
            x = R.full(R.shape([n, 3]), R.const(1.0, "float32"), dtype="float32")
            y = R.sum(R.exp(R.matmul(x, R.permute_dims(x))))
            z = R.full(R.shape([p, q]), R.const(2, "int32"), dtype="int32")
            R.output(y, z)
        return (y, z, f, i)

    @T.prim_func
    def scale(a: T.handle, factor: T.float32, m: T.int32, b: T.handle):
        k = T.int32()
        A = T.match_buffer(a, (k, 2), "float32")
        B = T.match_buffer(b, (k * 2,), "float32")
        for i in range(k * 2):
            with T.block("B"):
                vi = T.axis.spatial(k * 2, i)
                B[vi] = A[vi // 2, vi % 2] * factor + T.Cast("float32", m)
"""
OF_DTYPE = """
    @R.function
    def of_{0}(x: R.Tensor(("n", 2), "{0}")):
        y = R.astype(x, dtype="float64")
        return y
"""


def _shares(x: Any) -> Any:
    e = np.exp(2 * x.astype(np.float64))
    e = np.exp(e - e.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).sum(0)


def _product(a: Any, b: Any, c: Any) -> Any:
    return (a @ b.astype(np.float32)).ravel() + c.astype(np.float32), (*a.shape, b.shape[1])


def _numbers(f: float, i: int, rows: int, s: list[int]) -> Any:
    return rows * rows * np.exp(3.0), np.full(s, 2), float(f), int(i)


def number(x: Any) -> Any:
    return np.asarray(x).item()


def _scale(a: Any, factor: float, m: int, b: Any) -> None:
    wanted = a.ravel() * np.float32(number(factor)) + np.float32(number(m))
    np.testing.assert_allclose(b, wanted, rtol=1e-5)


REFERENCES: dict[str, Callable[..., Any]] = {
    "fixed": lambda x: 2 * x,
    "bounded": lambda x, y: _shares(x),
    "product": _product,
    "packed": lambda x, w: (np.where(w[1][0], x, 2 * x), w[0]),
    "numbers": lambda f, i, rows, s: _numbers(*map(number, (f, i, rows)), [int(number(size)) for size in s]),
    "scale": _scale,
    **{f"of_{d}": lambda x: x.astype(np.float64) for d in DTYPES},
}


def library() -> Library:
    return build(parse(HEAD + "".join(OF_DTYPE.format(d) for d in DTYPES)), num_threads=2)


def good(rng: Random, name: str) -> list[Any]:
    """Valid arguments."""
    n, m, k = (rng.choice((0, 1, 2, 3, 4)) for _ in range(3))
    if name.startswith("of_"):
        return [array(rng, name[3:], (n, 2))]
    inputs: dict[str, Callable[[], list[Any]]] = {
        "fixed": lambda: [array(rng, "float32", (3, 4))],
        "bounded": lambda: [array(rng, "float32", (n, 4)), array(rng, "int32", (n,))],
        "product": lambda: [
            array(rng, "float32", (n, m)),
            array(rng, "float16", (m, k)),
            array(rng, "int32", (n * k,)),
        ],
        "packed": lambda: [array(rng, "float32", (n,)), [array(rng, "int8", (3,)), (array(rng, "bool", (n,)),)]],
        "numbers": lambda: [1.5, m, n, (m, k)],
        "scale": lambda: [array(rng, "float32", (n, 2)), 2.0, m, array(rng, "float32", (n * 2,))],
    }
    return inputs[name]()


# -- calls ----------------------------------------------------------------------------------------------------------


def check(lib: Library, name: str, args: list[Any]) -> str:
    """Make a call; returns ``right`` or ``refused``. Raises AssertionError for a wrong result or exception."""
    try:
        result = lib[name](*args)
    except (MLCError, TypeError, ValueError, RuntimeError) as error:
        text = str(error)
        assert text.startswith(f"{name}: ") or text.startswith(f"{name} got ") or text.startswith("result 'out"), text
        return "refused"
    with np.errstate(all="ignore"):
        same(result, REFERENCES[name](*map(plain, args)))
    return "right"


def plain(x: Any) -> Any:
    """The argument with arrays of other libraries converted to numpy."""
    if isinstance(x, list | tuple):
        return tuple(map(plain, x))
    x = x.detach() if isinstance(x, torch.Tensor) else x
    return as_numpy(x) if hasattr(x, "__dlpack__") else x


def same(result: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert isinstance(result, tuple) and len(result) == len(wanted)
        for pair in zip(result, wanted, strict=True):
            same(*pair)
    elif wanted is None:
        assert result is None
    else:
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    lib, outcomes = library(), {"right": 0, "refused": 0}
    for number in range(options.seed, options.seed + options.count):
        print(number, flush=True)
        rng = Random(number)
        name = rng.choice(list(REFERENCES))
        args = good(rng, name)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            change(rng, args)
        outcomes[check(lib, name, args)] += 1
    print(*(f"{count} {outcome}" for outcome, count in outcomes.items()), sep=", ")


if __name__ == "__main__":
    main()
