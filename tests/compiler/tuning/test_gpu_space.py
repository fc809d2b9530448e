"""The schedule space for GPUs: candidates keep the results of their functions in both orders of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.visitor import walk
from mlc_compiler.schedules.rule import constant_extent
from mlc_compiler.target import Target
from mlc_compiler.tir.nodes import BufferStore, For, PrimFunc
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.tuning.gpu_space import GpuSketches
from mlc_compiler.tuning.program import default_space
from mlc_compiler.tuning.space import Candidate
from mlc_compiler.tuning.task import Task
from tests.compiler.backends.cuda import races
from tests.compiler.schedules.meaning import random_arguments, run
from tests.compiler.tuning.spaces import product, scaled
from tests.compiler.tuning.test_spaces import attention, padded_convolution, several

GPU = Target("cuda:sm_90a")


def result(candidate: Candidate, arguments: list[np.ndarray]) -> np.ndarray:
    """The last argument after the kernel ran as loops over its threads, ascending and descending."""
    named = IRModule({"main": candidate.func.with_attr("global_symbol", "main")})
    return races.run(races.lowered(named), *arguments)[-1]


@pytest.mark.parametrize("make", [product, padded_convolution, scaled])
def test_candidates_compute_the_function(make: Callable[[], PrimFunc]) -> None:
    task = Task("f", make(), GPU)
    arguments = random_arguments(task.func, {})
    (expected,) = run(task.func, arguments)
    for candidate in several(GpuSketches(), task, 2):
        np.testing.assert_allclose(result(candidate, arguments), expected, rtol=1e-4, atol=1e-5)


def shared(candidate: Candidate | None) -> set[str]:
    """The buffers in shared memory that a candidate fills."""
    assert candidate is not None
    stores = [n for n in walk(candidate.func.body) if isinstance(n, BufferStore)]
    return {n.buffer.name for n in stores if n.buffer.scope == "shared"}


def test_threads_of_a_block_copy_operands_together() -> None:
    """Tiles of 4 x 4 elements by 4 x 8 threads, 16 steps between barriers; with and without each copy."""
    task, space, tiles = Task("f", product(32, 64, 48), GPU), GpuSketches(), [[2, 4, 4], [2, 8, 4], [3, 16]]
    both = space.candidate(task, 0, [*tiles, 1, 0, 1, 2])
    assert both is not None and shared(both) == {"a_shared", "b_shared"}
    assert shared(space.candidate(task, 0, [*tiles, 0, 1, 0])) == {"b_shared"}
    bound = [n for n in walk(both.func.body) if isinstance(n, For) and n.thread]
    assert {(n.thread, constant_extent(n.extent)) for n in bound} == {("blockIdx.x", 4), ("threadIdx.x", 32)}
    again = Schedule(task.workload)
    both.trace.apply_to_schedule(again)
    assert again.func.script() == both.func.script()


def test_tiles_that_no_gpu_has_room_for_are_no_candidates() -> None:
    """2048 threads; 64 KiB of shared memory."""
    space, decisions = GpuSketches(), [[1, 1, 8], [1, 1, 8], [1, 1024]]
    assert space.candidate(Task("f", product(64, 64, 8), GPU), 0, [[1, 32, 2], [1, 64, 1], [8, 1], 0, 0, 0]) is None
    assert space.candidate(Task("f", product(8, 8, 1024), GPU), 0, [*decisions, 1, 0, 1, 0]) is None


def test_functions_without_sketches_have_their_rule() -> None:
    task = Task("f", attention(), GPU)
    assert GpuSketches().default(task) is None
    assert default_space(GPU).default(task) is not None
