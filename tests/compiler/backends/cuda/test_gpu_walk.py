"""The schedules of well-known TVM tutorials for GPUs: they run as printed, and give numpy's results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.script import parse, script
from mlc_compiler.tir.nodes import Allocate
from mlc_compiler.tir.schedule import Schedule, ScheduleError, Trace
from tests.compiler.backends.cuda.kernels import main, module, syncs
from tests.compiler.backends.cuda.races import Race, lowered, run

ADD = """
@T.prim_func
def main(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
    for i in range(N):
        with T.block("y"):
            vi = T.axis.spatial(N, i)
            y[vi] = x[vi] + T.float32(1)
"""
MATMUL = """
@T.prim_func
def main(A: T.Buffer((M, K), "float32"), B: T.Buffer((K, N), "float32"), C: T.Buffer((M, N), "float32")):
    for i, j, k in T.grid(M, N, K):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
WINDOW = """
@T.prim_func
def main(A: T.Buffer((N + 2,), "float32"), B: T.Buffer((N,), "float32")):
    for i in range(N):
        with T.block("B"):
            vi = T.axis.spatial(N, i)
            B[vi] = A[vi] + A[vi + 1] + A[vi + 2]
"""


def _matmul(m: int, n: int, k: int) -> Schedule:
    return Schedule(module(MATMUL, M=m, N=n, K=k))


def _check(sch: Schedule, m: int, n: int, k: int) -> IRModule:
    mod = lowered(sch.mod)
    assert script(parse(script(mod))) == script(mod)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    np.testing.assert_allclose(run(mod, a, b, np.zeros((m, n), np.float32))[2], a @ b, rtol=1e-4, atol=1e-4)
    return mod


def _shapes(mod: IRModule) -> dict[str, list[int]]:
    nodes = (n for n in walk(main(mod).body) if isinstance(n, Allocate))
    return {n.buffer.name: [int(s) for s in n.buffer.shape] for n in nodes}


@settings(max_examples=2)
@given(n=st.integers(1, 300))
def test_thread_binding(n: int) -> None:
    sch = Schedule(module(ADD, N=n))
    (i,) = sch.get_loops(sch.get_block("y"))
    bx, tx = sch.split(i, factors=[None, 128])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(run(lowered(sch.mod), x, np.zeros_like(x))[1], x + 1)


def test_window_sum_through_shared_memory() -> None:
    sch = Schedule(module(WINDOW, N=1024))
    block = sch.get_block("B")
    i0, i1 = sch.split(sch.get_loops(block)[0], [None, 128])
    sch.bind(i0, "blockIdx.x")
    sch.bind(i1, "threadIdx.x")
    copy = sch.cache_read(block, read_buffer_index=0, storage_scope="shared")
    sch.compute_at(copy, i1)
    _, tx = sch.split(sch.get_loops(copy)[-1], [None, 128])
    sch.bind(tx, "threadIdx.x")
    mod = lowered(sch.mod)
    assert _shapes(mod) == {"A_shared": [256]}  # what the two rounds of copying would cover
    assert syncs(mod) == 1
    a = np.random.default_rng(0).standard_normal(1026).astype(np.float32)
    found = run(mod, a, np.zeros(1024, np.float32))[1]
    np.testing.assert_allclose(found, a[:-2] + a[1:-1] + a[2:], rtol=1e-5, atol=1e-5)


@settings(max_examples=2)
@given(m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(1, 20))
def test_blocking(m: int, n: int, k: int) -> None:
    sch = _matmul(m, n, k)
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k_ = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 4, 2])
    j0, j1, j2 = sch.split(j, factors=[None, 2, 4])
    k0, k1 = sch.split(k_, factors=[None, 4])
    sch.unroll(k1)
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(local, j1)
    for loop, axis in zip((i0, j0, i1, j1), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=True):
        sch.bind(loop, axis)
    sch.decompose_reduction(block, k0)
    _check(sch, m, n, k)


def _fetch(sch: Schedule, block: str, threads: int, index: int, at: object, align: bool) -> None:
    copy = sch.cache_read(block, read_buffer_index=index, storage_scope="shared")
    sch.compute_at(copy, at)  # type: ignore[arg-type]
    inner = sch.fuse(*sch.get_loops(copy)[-2:])
    _, tx, vec = sch.split(inner, factors=[None, threads, 4])
    sch.vectorize(vec)
    sch.bind(tx, "threadIdx.x")
    if align:
        sch.storage_align(copy, 0, -2, 32, 4)


def _blocking_with_shared(sch: Schedule, align: bool = False) -> Schedule:
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 4, 4])
    j0, j1, j2 = sch.split(j, factors=[None, 8, 4])
    k0, k1 = sch.split(k, factors=[None, 8])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    tx = sch.fuse(i1, j1)
    sch.bind(tx, "threadIdx.x")
    _fetch(sch, block, 32, 0, k0, align)
    _fetch(sch, block, 32, 1, k0, align)
    sch.decompose_reduction(block, k0)
    return sch


def test_shared_memory_with_cooperative_fetching() -> None:
    mod = _check(_blocking_with_shared(_matmul(32, 64, 24)), 32, 64, 24)
    assert _shapes(mod) == {"A_shared": [16, 8], "B_shared": [8, 32], "C_local": [4, 4]}
    assert syncs(mod) == 2


@pytest.mark.parametrize(("m", "n", "k"), [(17, 33, 9), (40, 70, 20), (2, 2, 2), (5, 5, 3)])
def test_shared_memory_of_sizes_that_are_no_multiples(m: int, n: int, k: int) -> None:
    _check(_blocking_with_shared(_matmul(m, n, k)), m, n, k)


def test_storage_align_pads_rows() -> None:
    sch = _blocking_with_shared(_matmul(32, 64, 24), align=True)
    mod = _check(sch, 32, 64, 24)
    assert _shapes(mod) == {"A_shared": [16, 36], "B_shared": [8, 36], "C_local": [4, 4]}
    again = _matmul(32, 64, 24)
    Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    assert script(again.mod) == script(sch.mod)
    assert "sch.storage_align(" in str(sch.trace)


@pytest.mark.parametrize(
    ("axis", "factor", "offset", "message"),
    [
        (-1, 32, 4, "the last has stride 1"),
        (2, 32, 4, "got axis 2 of 'A_shared', which has 2"),
        (0, 32, 32, "expected 0 <= offset < factor"),
    ],
)
def test_storage_align_refuses(axis: int, factor: int, offset: int, message: str) -> None:
    sch = _matmul(32, 32, 32)
    copy = sch.cache_read(sch.get_block("C"), 0, "shared")
    with pytest.raises(ScheduleError, match=message):
        sch.storage_align(copy, 0, axis, factor, offset)


def test_a_removed_barrier_is_a_race() -> None:
    mod = lowered(_blocking_with_shared(_matmul(32, 64, 24)).mod)
    lines = script(mod).splitlines()
    last = max(i for i, line in enumerate(lines) if "tvm_storage_sync" in line)
    broken = parse("\n".join(lines[:last] + lines[last + 1 :]))
    assert isinstance(broken, IRModule)
    with pytest.raises(Race):
        run(broken, *(np.ones(shape, np.float32) for shape in ((32, 24), (24, 64), (32, 64))))


@settings(max_examples=2)
@given(step=st.sampled_from([1, 2, 4]), threads=st.sampled_from([2, 4]), k=st.integers(1, 3))
def test_virtual_threads(step: int, threads: int, k: int) -> None:
    tile, depth = 8 * threads, 8 * k
    sch = _matmul(2 * tile, 2 * tile, depth)
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k_ = sch.get_loops(block)
    by, vy, ty, yi = sch.split(i, factors=[None, step, threads, 8 // step])
    bx, vx, tx, xi = sch.split(j, factors=[None, step, threads, 8 // step])
    k0, k1 = sch.split(k_, factors=[None, 8])
    sch.reorder(by, bx, vy, vx, ty, tx, k0, k1, yi, xi)
    sch.reverse_compute_at(local, tx)
    for loop, axis in zip((by, vy, ty, bx, vx, tx), ("blockIdx", "vthread", "threadIdx") * 2, strict=True):
        sch.bind(loop, f"{axis}.{'y' if loop in (by, vy, ty) else 'x'}")
    for index in (0, 1):
        copy = sch.cache_read(block, index, "shared")
        sch.compute_at(copy, k0)
        fetch = sch.fuse(*sch.get_loops(copy)[-2:])
        u, v, _ = sch.split(fetch, factors=[threads, threads, None])
        sch.bind(u, "threadIdx.y")
        sch.bind(v, "threadIdx.x")
    sch.decompose_reduction(block, k0)
    mod = _check(sch, 2 * tile, 2 * tile, depth)
    assert _shapes(mod)["A_shared"] == [tile, 8]


def test_virtual_threads_need_a_constant_extent() -> None:
    text = """
    @T.prim_func
    def main(var_x: T.handle):
        n = T.int64()
        x = T.match_buffer(var_x, (n,), "float32")
        for i in range(n):
            with T.block("x"):
                vi = T.axis.spatial(n, i)
                x[vi] = T.float32(1)
    """
    for axis in ("vthread.x", "threadIdx.x"):
        sch = Schedule(module(text))
        with pytest.raises(ScheduleError, match="the extent of 'i' is not a constant"):
            sch.bind(sch.get_loops("x")[0], axis)


def test_threads_may_not_write_their_own_parts_of_one_shared_buffer() -> None:
    """A copy that was moved before the loop was bound covers what one iteration reads, not what all threads read."""
    sch = Schedule(module(WINDOW, N=1024))
    i0, i1 = sch.split(sch.get_loops("B")[0], [None, 128])
    sch.compute_at(sch.cache_read("B", 0, "shared"), i1)
    sch.bind(i0, "blockIdx.x")
    with pytest.raises(ScheduleError, match="each iteration of loop 'i_1' writes its own part of the shared buffer"):
        sch.bind(i1, "threadIdx.x")
