"""The CPU's radix sort and the operator's merge sort give PyTorch's order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_compiler import build, te
from mlc_compiler.backends.cpu.operators.sort import argsort, topk
from mlc_compiler.interp import run_prim_func
from mlc_compiler.ir.expr import Var
from mlc_compiler.relax.ops import search
from mlc_compiler.relax.tensor_call import NoKernel

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")


def elements(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers with ties, both zeros, infinities and NaN of both signs."""
    rng = np.random.default_rng(0)
    values = rng.integers(-100, 100, shape) * (3 if dtype in ("int64", "int32") else 1)
    if not dtype.startswith("float"):
        return values.astype(dtype)
    found = (values / 7).astype(dtype)
    found.ravel()[:8] = [np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf, -0.0, np.nan]
    return rng.permuted(found.ravel()).reshape(shape)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axis", "shape"), [(1, (3, 300)), (0, (130, 5))])
def test_the_order_is_that_of_pytorch(dtype: str, axis: int, shape: tuple[int, ...], descending: bool) -> None:
    x = elements(dtype, shape)
    wanted = torch.sort(torch.from_numpy(x), dim=axis, stable=True, descending=descending)[1].numpy()
    data, found = te.placeholder(shape, dtype, "data"), np.zeros(shape, "int64")
    places = argsort(data, axis=axis, descending=descending, dtype="int64")
    build(te.create_prim_func([data, places]))["main"](x, found)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("descending", [False, True])
def test_the_definition_has_the_same_order(descending: bool) -> None:
    x = elements("float32", (40,))
    data, found = te.placeholder(x.shape, name="data"), np.zeros(x.shape, "int64")
    places = search.argsort.te(data, axis=0, descending=descending, dtype="int64")
    run_prim_func(te.create_prim_func([data, places]), x, found)
    wanted = torch.sort(torch.from_numpy(x), stable=True, descending=descending)[1].numpy()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_rows_of_symbolic_size(size: int) -> None:
    x = elements("float32", (2, 100))[:, :size]
    data, found = te.placeholder((2, Var("n")), name="data"), np.zeros(x.shape, "int32")
    build(te.create_prim_func([data, argsort(data)]))["main"](np.ascontiguousarray(x), found)
    np.testing.assert_array_equal(found, torch.sort(torch.from_numpy(x), stable=True)[1].numpy())


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [0, 5, 200])
def test_best_elements(k: int, largest: bool) -> None:
    """All elements, few, and so many that sorting all takes fewer steps; of a tie, the first."""
    x = elements("float32", (3, 300))
    data = te.placeholder(x.shape, name="data")
    definition = topk if k != 5 else search.topk.te
    values, places = definition(data, k=k, largest=largest, dtype="int64")  # type: ignore[misc]
    results = [np.zeros((3, k or 300), dtype) for dtype in ("float32", "int64")]
    build(te.create_prim_func([data, values, places]))["main"](x, *results)
    wanted = torch.sort(torch.from_numpy(x), stable=True, descending=largest)
    np.testing.assert_array_equal(results[0], wanted[0][:, : k or 300])
    np.testing.assert_array_equal(results[1], wanted[1][:, : k or 300])


def test_short_rows_and_few_elements_have_no_kernel() -> None:
    data = te.placeholder((3, 20), name="data")
    with pytest.raises(NoKernel):
        argsort(data)
    with pytest.raises(NoKernel):
        topk(te.placeholder((3, 300), name="data"), k=5)
