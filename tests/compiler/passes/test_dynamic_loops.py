"""Dynamic parallel loops run every iteration exactly once."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.script import T

ROUNDS = 50


@T.prim_func
def count(var_hits: T.handle, var_total: T.handle):
    n = T.int64()
    hits = T.match_buffer(var_hits, (n,), "int32")
    total = T.match_buffer(var_total, (n, 2), "int32")
    for _ in range(ROUNDS):
        for i in T.parallel(n, annotations={"schedule": "dynamic"}):
            hits[i] = hits[i] + 1
        for j in T.parallel(n * 2, annotations={"schedule": "dynamic"}):
            total[j // 2, j % 2] = total[j // 2, j % 2] + hits[j // 2] + T.Cast("int32", j % 2)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 7, 300])
def test_every_iteration_runs_once(threads: int, n: int):
    main = build(count, num_threads=threads)["count"]
    hits, total = np.zeros(n, np.int32), np.zeros((n, 2), np.int32)
    for call in range(1, 4):
        main(hits, total)
        assert hits.tolist() == [ROUNDS * call] * n
    full = sum(range(1, 3 * ROUNDS + 1))
    assert total.tolist() == [[full, full + 3 * ROUNDS]] * n
