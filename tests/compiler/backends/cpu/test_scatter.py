"""The CPU's kernel of ``scatter_elements`` gives the operator's results, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import te
from mlc_compiler.backends.cpu.operators.scatter import scatter_elements
from mlc_compiler.interp import run_prim_func
from mlc_compiler.relax.ops import scatter


@pytest.mark.parametrize("columns", [32, 37], ids=["whole tiles", "a partial tile"])
@pytest.mark.parametrize("reduction", ["update", "add"])
def test_tiles_of_columns_keep_the_order_of_updates(columns: int, reduction: str) -> None:
    """Repeated indices, from the end, out of range; fewer rows and columns of indices than of data."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, 5, columns), np.float32)
    indices = rng.integers(-7, 8, (2, 9, columns - 1))
    updates = rng.standard_normal(indices.shape, np.float32)
    names = {"data": data, "indices": indices, "updates": updates}
    given = [te.placeholder(a.shape, str(a.dtype), name=name) for name, a in names.items()]
    results = []
    for definition in (scatter_elements, scatter.scatter_elements.te):
        func = te.create_prim_func([*given, definition(*given, axis=1, reduction=reduction)])
        results.append(np.zeros_like(data))
        run_prim_func(func, *names.values(), results[-1])
    np.testing.assert_array_equal(*results)
    assert not np.array_equal(results[0], data)
