"""A blocked matmul: all threads of a block together copy tiles of both operands to shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlc_compiler import Schedule, T
from mlc_compiler.interp import run_prim_func
from mlc_compiler.tir.schedule import ScheduleError


@T.prim_func
def matmul(A: T.Buffer((16, 24), "float32"), B: T.Buffer((24, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    for i, j, k in T.grid(16, 32, 24):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def fetch(sch: Schedule, block: str, threads: int, operand: int, loop: Any) -> None:
    """Copy an operand's tile to shared memory with ``threads`` threads, four elements per thread at a time."""
    copy = sch.cache_read(block, operand, "shared")
    sch.compute_at(copy, loop)
    _, thread, lanes = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), factors=[None, threads, 4])
    sch.vectorize(lanes)
    sch.bind(thread, "threadIdx.x")


def test_both_operands_are_fetched_together():
    sch = Schedule(matmul)
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 2, 4])
    j0, j1, j2 = sch.split(j, factors=[None, 4, 2])
    k0, k1 = sch.split(k, factors=[None, 8])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.bind(sch.fuse(i1, j1), "threadIdx.x")
    fetch(sch, block, 8, 0, k0)
    fetch(sch, block, 8, 1, k0)
    sch.decompose_reduction(block, k0)
    assert sch.mod.script().count('T.thread_binding(8, thread="threadIdx.x")') == 3
    a, b = (np.random.default_rng(0).integers(-8, 9, s).astype(np.float32) for s in ((16, 24), (24, 32)))
    c = np.full((16, 32), np.nan, np.float32)
    run_prim_func(sch.func, a, b, c)
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("copy_first", [False, True])
def test_a_copy_for_one_thread_is_not_divided_among_the_threads(copy_first: bool):
    """Two threads, each with two rows of A; the copy that was moved before the binding covers only a thread's own."""
    sch = Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 2, 2])
    k0, k1 = sch.split(k, factors=[None, 3])
    sch.reorder(i0, i1, j, k0, k1, i2)
    copy = sch.cache_read(block, 0, "shared")
    sch.compute_at(copy, k0)
    _, thread = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), factors=[None, 2])
    sch.bind(i0, "blockIdx.x")
    first, second = (thread, i1) if copy_first else (i1, thread)
    sch.bind(first, "threadIdx.x")
    with pytest.raises(ScheduleError, match=f"loop '{thread.name}' inside 'i_1' .* depends on 'i_1'"):
        sch.bind(second, "threadIdx.x")
