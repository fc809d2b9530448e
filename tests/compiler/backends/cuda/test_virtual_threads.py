"""Virtual threads: statements are replicated, private buffers widened, results unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.backends.cuda.passes.virtual_threads import VirtualThreads
from mlc_compiler.ir.visitor import walk
from mlc_compiler.script import parse, script
from mlc_compiler.tir.nodes import UNROLLED, Allocate, For
from mlc_compiler.tir.threads import VIRTUAL_AXES, is_bound, sync_scope
from mlc_errors import MLCError
from tests.compiler.backends.cuda.kernels import main, module
from tests.compiler.backends.cuda.races import run

TWO_AXES = """
@T.prim_func
def main(x: T.Buffer((R, 8), "float32"), y: T.Buffer((V, W, 8), "float32")):
    for bx in T.thread_binding(1, thread="blockIdx.x"):
        tile = T.decl_buffer((R, 8), "float32", scope="shared")
        for v in T.thread_binding(V, thread="vthread.x"):
            for w in T.thread_binding(W, thread="vthread.y"):
                for t in T.thread_binding(8, thread="threadIdx.x"):
                    acc = T.decl_buffer((1,), "float32", scope="local")
                    acc[0] = T.float32(0.0)
                    for k in range(R):
                        tile[k, t] = x[k, t]
                        T.tvm_storage_sync("shared")
                        s: T.int64 = v * 3 + w
                        if k > 0:
                            acc[0] = acc[0] + tile[k, 7 - t] * T.Cast("float32", s)
                    y[v, w, t] = acc[0]
"""


@settings(max_examples=5)
@given(v=st.integers(1, 4), w=st.integers(1, 3), rows=st.integers(1, 5))
def test_results_match_numpy(v: int, w: int, rows: int) -> None:
    mod = module(TWO_AXES, V=v, W=w, R=rows)
    x = np.random.default_rng(0).standard_normal((rows, 8), np.float32)
    y = run(VirtualThreads().run(mod), x, np.zeros((v, w, 8), np.float32))[1]
    scale = np.arange(v)[:, None, None] * 3 + np.arange(w)[None, :, None]
    np.testing.assert_allclose(y, scale * x[1:].sum(0)[::-1], rtol=1e-5, atol=1e-5)


def test_shared_statements_run_once_and_private_buffers_get_an_axis() -> None:
    func = main(VirtualThreads().run(module(TWO_AXES, V=2, W=3, R=4)))
    nodes = list(walk(func.body))
    assert not any(is_bound(n, VIRTUAL_AXES) for n in nodes)
    assert sum(sync_scope(n) == "shared" for n in nodes) == 1
    shapes = {n.buffer.name: [int(s) for s in n.buffer.shape] for n in nodes if isinstance(n, Allocate)}
    assert shapes == {"tile": [4, 8], "acc": [2, 3, 1]}
    assert sorted(int(n.extent) for n in nodes if isinstance(n, For) and n.kind == UNROLLED) == [2, 2, 2, 3, 3, 3]


def test_the_result_reads_back() -> None:
    mod = VirtualThreads().run(module(TWO_AXES, V=2, W=3, R=4))
    assert script(parse(script(mod))) == script(mod)


def test_a_barrier_under_a_condition_on_a_virtual_thread_is_refused() -> None:
    text = TWO_AXES.replace("if k > 0:", 'if k > v:\n                            T.tvm_storage_sync("shared")')
    with pytest.raises(MLCError, match="barrier lies inside a condition or loop that depends on 'v'"):
        VirtualThreads().run(module(text, V=2, W=3, R=4))
