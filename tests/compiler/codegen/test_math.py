"""Elementary functions: accuracy over the whole range, special values, other types, other CPUs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_compiler.ir.expr import Call
from mlc_compiler.target import Target
from mlc_compiler.tir.math import POLYNOMIALS
from mlc_compiler.tir.math.exponential import coarse_exp
from tests.compiler.codegen.accuracy import (
    BINARY_REFERENCES,
    REFERENCES,
    all_floats,
    function_kernels,
    worst_error,
)
from tests.compiler.codegen.native import Kernels, apply, assembly, elementwise

INF, NAN = np.inf, np.nan
TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:generic")
EXACT = ("floor", "ceil", "trunc", "round", "abs")


@pytest.fixture(scope="module", params=TARGETS)
def compiled(request) -> Kernels:
    return function_kernels(REFERENCES | BINARY_REFERENCES, Target(request.param))


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    """A million numbers: all exponents, both signs, subnormals, infinities and NaN."""
    x = next(all_floats(4093))
    assert {0, 254, 255} <= set((x.view(np.uint32) >> 23 & 255).tolist())
    return x[: x.size // 16 * 16].copy()


@pytest.mark.parametrize("name", REFERENCES)
def test_error_over_the_whole_range(compiled, sample, name):
    limit = 0.0 if name in EXACT else 2.0 if name in POLYNOMIALS else 0.51
    worst = worst_error(compiled, name, sample)
    assert worst.ulp <= limit, worst


SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 1.0, -1.0, 2.5, 3.4028235e38, -3.4028235e38, INF, -INF, NAN]
)
SPECIAL = np.concatenate(
    [SPECIAL, [-2.0, 0.5, -0.5, 1.5, 1e-30, -1e-30, 88.8, -88.8, 16777216.0, 33554434.0, 3.0, -3.0]]
)


@pytest.mark.parametrize("name", BINARY_REFERENCES)
def test_functions_of_two_arguments(compiled, name):
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(SPECIAL, SPECIAL))
    rng = np.random.default_rng(0)
    random = rng.integers(0, 1 << 32, (2, 1 << 18), np.uint64).astype(np.uint32).view(np.float32)
    near = np.exp(rng.normal(0, 3, (2, 1 << 18))).astype(np.float32)
    near[1] *= np.where(rng.random(1 << 18) < 0.5, -1, 1)
    x, y = (np.concatenate(parts)[: -(x.size % 16) or None].copy() for parts in zip((x, y), random, near))
    worst = worst_error(compiled, name, x, y)
    assert worst.ulp <= (2.0 if name == "pow" else 0.51), worst


@pytest.mark.parametrize("target", TARGETS)
def test_coarse_exponentials_of_numbers_that_are_not_positive(target, sample):
    """To 2 ** -13 down to e ** -87, below which they are zero."""
    x = np.concatenate([-np.abs(sample), np.linspace(-88, 0, 1 << 16, dtype=np.float32)])
    kernels = Kernels({"f": elementwise(coarse_exp, ("float32",), "float32")}, Target(target))
    got = apply(kernels["f"], np.empty_like(x), x)
    with np.errstate(invalid="ignore"):
        exact = np.where(x < -87, 0, np.exp(x.astype(np.float64)))
    assert np.isnan(got[np.isnan(x)]).all()
    assert (np.abs(got - exact)[~np.isnan(x)] <= (2.0**-13 * exact)[~np.isnan(x)]).all()


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_special_values(compiled, name):
    args = (np.resize(SPECIAL, 32).astype(np.float32),) * (2 if name == "pow" else 1)
    assert worst_error(compiled, name, *args).ulp <= 2.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_argument(dtype):
    names = [*POLYNOMIALS, "sqrt", *EXACT]
    kernels = Kernels({n: elementwise(lambda *a, n=n: Call(n, a, dtype), (dtype,) * _arity(n), dtype) for n in names})
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype)
    for name in names:
        args = (x,) * _arity(name)
        got = apply(kernels[name], np.empty_like(x), *args)
        with np.errstate(all="ignore"):
            exact = (REFERENCES | BINARY_REFERENCES)[name](*(a.astype(np.float64) for a in args))
            wanted = exact.astype(np.float32).astype(numpy_dtype)
        assert np.array_equal(np.isnan(got), np.isnan(wanted)), name
        steps = _ordered(got[~np.isnan(got)]) - _ordered(wanted[~np.isnan(got)])
        assert np.abs(steps).max() <= 1, name
        assert np.mean(steps != 0) < 1e-3, name


def _arity(name: str) -> int:
    return 2 if name == "pow" else 1


def _ordered(x: np.ndarray) -> np.ndarray:
    """16-bit floats as integers in the same order."""
    code = x.view(np.int16).astype(np.int32)
    return np.where(code < 0, -(code & 0x7FFF), code)


def test_double_precision():
    names = [n for n in (*POLYNOMIALS, "sqrt", *EXACT) if n != "pow"]
    kernels = Kernels({n: elementwise(lambda x, n=n: Call(n, (x,), "float64"), ("float64",), "float64") for n in names})
    x = np.concatenate([np.resize(SPECIAL, 32), np.random.default_rng(0).normal(0, 20, 4096)])
    for name in names:
        got = apply(kernels[name], np.empty_like(x), x)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, REFERENCES[name](x), rtol=1e-15, atol=1e-300, err_msg=name)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_functions_are_vector_code(name):
    kernel = elementwise(lambda *a: Call(name, a, "float32"), ("float32",) * _arity(name), "float32")
    text = assembly(kernel, Target("cpu:x86-64-v4"))
    assert "zmm" in text
    assert "call" not in text
    assert not any(scalar in text for scalar in ("addss", "mulss", "fmadd213ss", "fmadd231ss"))
