"""Loads, stores and conversions of every dtype agree with numpy, ml_dtypes and the interpreter."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mlc_compiler.interp import scalars
from mlc_compiler.ir import dtype as dt
from mlc_compiler.ir.expr import Cast, FloatImm
from mlc_compiler.target import Target
from tests.compiler.codegen.native import LANES, Kernels, apply, elementwise

INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
DTYPES = ["bool", *INTS, *FLOATS]

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")


@pytest.fixture(scope="module")
def conversions() -> Kernels:
    """Every dtype to every other."""
    return compiled(DTYPES, "cpu")


def compiled(dtypes: list[str], on: str) -> Kernels:
    pairs = {f"{a}.{b}": elementwise(lambda x, b=b: _cast(b, x), (a,), b) for a, b in product(dtypes, dtypes)}
    return Kernels(pairs, Target(on))


def _cast(dtype, x):
    return x if x.dtype == dtype else Cast(dtype, x)


def values_of(dtype: str) -> np.ndarray:
    """All values of a dtype of at most 16 bits; a sample of wider ones, with values near representable ones."""
    to = dt.to_numpy(dtype)
    width = dt.bits(dtype)
    if dtype == "bool":
        return np.resize([False, True], LANES)
    if width <= 8:
        codes = np.arange(1 << width, dtype=np.uint8)
        return np.resize(codes.view(to) if width == 8 else codes.astype(to), max(LANES, 1 << width))
    codes = np.arange(1 << 16, dtype=np.uint16)
    if width == 16:
        return codes.view(to)
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 63, 1 << 12, np.uint64) >> rng.integers(0, width - 1, 1 << 12).astype(np.uint64)
    patterns = words.astype(f"uint{width}").view(to)
    with np.errstate(all="ignore"):
        near = [v for d in ("float16", "bfloat16") for v in _around(codes.view(dt.to_numpy(d)), to)]
    return np.concatenate([patterns, *near])


def _around(narrow: np.ndarray, to: np.dtype) -> list[np.ndarray]:
    """Narrow values in a wider type, the points halfway between neighbours, and their neighbours."""
    wide = narrow.astype(np.float64)[::5][: 1 << 13]
    halfway = ((narrow.astype(np.float64) + np.roll(narrow, 1).astype(np.float64)) / 2)[::5][: 1 << 13]
    if to.kind == "f":
        middle = halfway.astype(to)
        return [wide.astype(to), middle, np.nextafter(middle, to.type(np.inf)), np.nextafter(middle, to.type(-np.inf))]
    inside = np.abs(wide) < 2.0 ** (to.itemsize * 8 - 1)
    return [np.where(inside, np.abs(wide) if to.kind == "u" else wide, 0).astype(to)]


def expected(x: np.ndarray, source: str, result: str) -> np.ndarray:
    """``x`` in another dtype: numpy's and ml_dtypes' ``astype``, but floats saturate as integers and NaN gives 0."""
    to = dt.to_numpy(result)
    with np.errstate(all="ignore"):
        if result == "bool":
            return x.astype(np.float64) != 0 if dt.is_float(source) else x.astype(np.int64) != 0
        if dt.is_float(source) and dt.is_int(result):
            return _saturated(x.astype(np.float64), result)
        if result in ("int4", "uint4"):
            low = x.astype(np.int64) & 15
            return (np.where(low > 7, low - 16, low) if result == "int4" else low).astype(to)
        if source in ("int4", "uint4"):
            x = x.astype(np.int64)
        return x.astype(to)


def _saturated(x: np.ndarray, dtype: str) -> np.ndarray:
    convert = scalars.converter("float64", dtype)
    wide = np.int64 if dt.is_signed(dtype) else np.uint64
    return np.array([convert(v) for v in x.tolist()], wide).astype(dt.to_numpy(dtype))


def assert_same(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
    """Equal bits, but NaN may be any NaN of the same sign."""
    if got.dtype.kind in "iub" or got.dtype.name in ("int4", "uint4"):
        different = got.view(f"u{got.itemsize}") != wanted.view(f"u{got.itemsize}")
    else:
        nan = np.isnan(wanted)
        assert np.array_equal(np.isnan(got), nan), what
        different = (got.view(f"u{got.itemsize}") != wanted.view(f"u{got.itemsize}")) & ~nan
    assert not different.any(), f"{what}: {got[different][:5]} for {wanted[different][:5]}"


@pytest.mark.parametrize("source", DTYPES)
def test_conversions_of_all_values(conversions, source):
    check(conversions, source, DTYPES)


@pytest.mark.parametrize("on", ["cpu:x86-64-v3", "cpu:generic"])
def test_conversions_on_other_cpus(on):
    dtypes = [*FLOATS, "int4", "int64", "uint64"]
    kernels = compiled(dtypes, on)
    for source in dtypes:
        check(kernels, source, dtypes)


def check(kernels: Kernels, source: str, results: list[str]) -> None:
    x = values_of(source)
    for result in results:
        got = apply(kernels[f"{source}.{result}"], np.empty(x.size, dt.to_numpy(result)), x)
        assert_same(got, expected(x, source, result), f"{source} to {result}")


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint8"])
def test_conversions_are_those_of_the_interpreter(conversions, source):
    x = values_of(source)[:256]
    for result in DTYPES:
        convert = scalars.converter(source, result)
        with np.errstate(all="ignore"):
            wanted = np.array([convert(v) for v in (x.tolist() if source == "uint8" else x)], dt.to_numpy(result))
        got = apply(conversions[f"{source}.{result}"], np.empty(x.size, dt.to_numpy(result)), x)
        assert_same(got, wanted, f"{source} to {result}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_constants(dtype):
    numbers = [0.0, -0.0, 1.0, -2.5, 0.1, 1e-8, 6e-5, 3e4, 1e30, np.inf, -np.inf, np.nan]
    kernels = Kernels(
        {f"k{i}": elementwise(lambda x, n=n: FloatImm(n, dtype), (dtype,), dtype) for i, n in enumerate(numbers)}
    )
    for i, number in enumerate(numbers):
        out = np.empty(LANES, dt.to_numpy(dtype))
        with np.errstate(all="ignore"):
            wanted = np.full(LANES, number).astype(out.dtype)
        assert_same(apply(kernels[f"k{i}"], out, out.copy()), wanted, str(number))


def test_a_bool_of_any_byte_is_its_truth():
    kernels = Kernels({"k": elementwise(lambda x: Cast("int32", x), ("bool",), "int32")})
    raw = np.arange(256, dtype=np.uint8)
    got = apply(kernels["k"], np.empty(256, np.int32), raw)
    assert np.array_equal(got, raw != 0)


def test_4_bit_integers_ignore_the_upper_half_of_their_byte():
    kernels = Kernels({d: elementwise(lambda x: Cast("int32", x), (d,), "int32") for d in ("int4", "uint4")})
    raw = np.arange(256, dtype=np.uint8)
    low = (raw & 15).astype(np.int32)
    assert np.array_equal(apply(kernels["uint4"], np.empty(256, np.int32), raw), low)
    assert np.array_equal(apply(kernels["int4"], np.empty(256, np.int32), raw), np.where(low > 7, low - 16, low))
