"""Every dtype as buffer, literal, cast, limit and reduction: compiled code agrees with the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.script import parse, script
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.verifier import verify

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
DTYPES = ["bool", *INTEGERS, *FLOATS]

TEXT = """
@T.prim_func
def {dtype}_values(a: T.Buffer((4,), "{dtype}"), limits: T.Buffer((3,), "{dtype}"), wide: T.Buffer((4,), "float64"),
                   back: T.Buffer((4,), "{dtype}")):
    T.func_attr({{"num_outputs": 3}})
    limits[0] = T.min_value("{dtype}")
    limits[1] = T.max_value("{dtype}")
    limits[2] = T.{dtype}(1)
    for i in range(4):
        wide[i] = T.float64(a[i])
        back[i] = T.Cast("{dtype}", T.float64(a[i]))
"""


def limits(dtype: str) -> tuple[float, float]:
    """The minimum and maximum finite values."""
    if dtype == "bool":
        return False, True
    info = ml_dtypes.finfo(dt.to_numpy(dtype)) if dt.is_float(dtype) else ml_dtypes.iinfo(dt.to_numpy(dtype))
    return info.min, info.max


def extremes(dtype: str) -> PrimFunc:
    """Maximum and minimum of each row."""
    a = te.placeholder((4, 3), dtype, name="a")
    k, j = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, 3), name="j")
    most = te.compute((4,), lambda i: te.max(a[i, k], axis=k), name="most")
    least = te.compute((4,), lambda i: te.min(a[i, j], axis=j), name="least")
    return te.create_prim_func([a, most, least]).with_attr("global_symbol", f"{dtype}_extremes")


FUNCTIONS = {f.attrs["global_symbol"]: f for d in DTYPES for f in (parse(TEXT.format(dtype=d)), extremes(d))}


@pytest.fixture(scope="module")
def library():
    mod = IRModule(FUNCTIONS)
    verify(mod)
    return build(mod)


def interpreted(func: PrimFunc, given: np.ndarray) -> list[np.ndarray]:
    results = [np.zeros([int(s) for s in b.shape], dt.to_numpy(b.dtype)) for b in func.buffers[1:]]
    run_prim_func(func, given, *results)
    return results


def compiled(library, name: str, given: np.ndarray) -> list[np.ndarray]:
    shapes = [(tuple(int(s) for s in b.shape), b.dtype) for b in FUNCTIONS[name].buffers[1:]]
    results = [np.zeros(shape, dt.to_numpy(dtype)) for shape, dtype in shapes]
    library[name](given, *results)
    return results


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_text_keeps_the_dtype(dtype: str) -> None:
    for name in (f"{dtype}_values", f"{dtype}_extremes"):
        assert first_difference(parse(script(FUNCTIONS[name])), FUNCTIONS[name]) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_limits_literals_and_casts(dtype: str, library) -> None:
    low, high = limits(dtype)
    given = np.array([low, 0, 1, high], dt.to_numpy(dtype))
    for results in (interpreted(FUNCTIONS[f"{dtype}_values"], given), compiled(library, f"{dtype}_values", given)):
        bounds, wide, back = results
        assert [bounds[0], bounds[1], bounds[2]] == [given[0], given[3], given[2]]
        np.testing.assert_array_equal(wide, given.astype(np.float64))
        exact = dtype not in ("int64", "uint64")  # their limits are no float64
        np.testing.assert_array_equal(back[: 4 if exact else 3], given[: 4 if exact else 3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_start_from_the_limits(dtype: str, library) -> None:
    """Rows of only the minimum value, only the maximum, and values in between."""
    low, high = limits(dtype)
    rows = [[low] * 3, [high] * 3, [low, low, high], [0, 1, 0]]
    given = np.array(rows, dt.to_numpy(dtype))
    name = f"{dtype}_extremes"
    for most, least in (interpreted(FUNCTIONS[name], given), compiled(library, name, given)):
        assert most.tolist() == [given[0, 0], given[1, 0], given[1, 0], given[3, 1]]
        assert least.tolist() == [given[0, 0], given[1, 0], given[0, 0], given[3, 0]]
