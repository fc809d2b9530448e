"""Predicted times of GPU schedules: counts as in the simulator, order of schedules, and searches without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from mlc_compiler.backends.cuda.images import Resources
from mlc_compiler.backends.cuda.machine import Gpu, resident_blocks
from mlc_compiler.backends.cuda.schedules import CUDA_RULES
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.passes.apply_schedules import ApplySchedules
from mlc_compiler.relax.ops.normalize import rms_norm
from mlc_compiler.script import T
from mlc_compiler.target import Target
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_compiler.tir.schedule import Schedule
from mlc_compiler.tuning import predict
from mlc_compiler.tuning.database import Database
from mlc_compiler.tuning.gpu_accounting import gpu_account
from mlc_compiler.tuning.gpu_prediction import GpuAccount
from mlc_compiler.tuning.gpu_space import GpuSketches
from mlc_compiler.tuning.measure import Limits, Measurer, Ready
from mlc_compiler.tuning.predict import Predictor, is_timed
from mlc_compiler.tuning.processes import Processes
from mlc_compiler.tuning.program import default_space
from mlc_compiler.tuning.record import Record
from mlc_compiler.tuning.search import Search
from mlc_compiler.tuning.space import Candidate, RuleSpace, ScheduleFn, Space
from mlc_compiler.tuning.strategies import History, RandomSearch
from mlc_compiler.tuning.task import Task
from mlc_compiler.tuning.tuned import Tuned
from mlc_compiler.tuning.worker import Assemble
from tests.compiler.backends.cuda.scheduled import simulated
from tests.compiler.tuning.spaces import DEFECTS, product, scaled

GPU = Target("cuda:sm_90a")
PATIENT = Limits(build=600.0, run=600.0)
TILES = [[2, 4, 4], [2, 8, 4], [3, 16]]
"""Of a product of 32 x 64 x 48: 32 threads with 4 x 4 elements each, 16 steps between two barriers."""


def sketch(func: PrimFunc, decisions: list) -> Candidate:
    made = GpuSketches().candidate(Task("f", func, GPU), 0, decisions)
    assert made is not None
    return made


def predicted(func: PrimFunc, decisions: list) -> GpuAccount:
    return gpu_account(sketch(func, decisions).func, GPU, {})


def bound(order: Callable[[Schedule], None], target: Target = GPU) -> GpuAccount:
    """The account of ``scaled`` with rows and columns bound by ``order``."""
    s = Schedule(scaled(1024, 1024))
    order(s)
    return gpu_account(s.func, target, {})


def along_rows(s: Schedule) -> None:
    i, j = s.get_loops("b")
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")


def along_columns(s: Schedule) -> None:
    i, j = s.get_loops("b")
    s.reorder(j, i)
    s.bind(j, "blockIdx.x")
    s.bind(i, "threadIdx.x")


# -- counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [[1, 0, 1, 0, 0], [1, 2, 1, 1, 0], [0, 0, 0]])
def test_counts_are_those_of_the_simulator(shared: list[int]) -> None:
    """Sectors of device memory and passes through shared memory, which LLVM's code makes as they are estimated."""
    candidate = sketch(product(32, 64, 48), [*TILES, *shared])
    (kernel,) = gpu_account(candidate.func, GPU, {}).kernels
    a, b, c = np.ones((32, 48), np.float32), np.ones((48, 64), np.float32), np.zeros((32, 64), np.float32)
    _, (launched,) = simulated(candidate.func, a, b, c, target=GPU)
    assert (kernel.blocks, kernel.threads) == (launched.blocks, launched.block[0]) == (4, 32)
    counts = launched.counts
    sectors = counts.global_load_sectors + counts.global_store_sectors
    assert kernel.l2_bytes * kernel.blocks == sectors * 32
    assert kernel.shared_passes * kernel.blocks == counts.shared_wavefronts
    assert kernel.memory_bytes == a.nbytes + b.nbytes + c.nbytes


def test_kernels_that_are_not_launched_do_not_count() -> None:
    @T.prim_func
    def chosen(x: T.Buffer((4096,), "float32"), n: T.int64):
        if n <= 8:
            for block in T.thread_binding(4, thread="blockIdx.x"):
                for thread in T.thread_binding(32, thread="threadIdx.x"):
                    x[block * 32 + thread] = T.float32(0)
        else:
            for block in T.thread_binding(16, thread="blockIdx.x"):
                for thread in T.thread_binding(256, thread="threadIdx.x"):
                    x[block * 256 + thread] = T.float32(0)

    blocks = {n: [kernel.blocks for kernel in gpu_account(chosen, GPU, {"n": n}).kernels] for n in (8, 9)}
    assert blocks == {8: [4], 9: [16]}


def test_bandwidth_and_multiprocessors_are_the_targets() -> None:
    """8 MiB at 1 and 3 TB/s; blocks of two multiprocessors, one after another."""
    times = [
        bound(along_rows, Target(f"cuda -arch=sm_90a {option}")).seconds
        for option in ("-memory-gb-per-s=3000", "-memory-gb-per-s=1000", "-multiprocessors=2")
    ]
    assert times[0] > 2.8e-6 and times[1] - times[0] > 5e-6 and times[2] > 9 * times[1]


def test_registers_limit_the_blocks_of_a_multiprocessor() -> None:
    of = lambda registers: resident_blocks(registers, 0, 256, Gpu.of(GPU))  # noqa: E731
    assert (of(32), of(64), of(128), of(255), resident_blocks(255, 0, 512, Gpu.of(GPU))) == (8, 4, 2, 1, 0)


# -- order ----------------------------------------------------------------------------------------------------------


def test_coalesced_accesses_are_faster() -> None:
    """Threads along a row access 32 bytes of every sector; along a column, 4 bytes."""
    (rows,), (columns,) = bound(along_rows).kernels, bound(along_columns).kernels
    assert columns.l2_bytes == 8 * rows.l2_bytes and columns.memory_bytes == rows.memory_bytes
    assert bound(along_columns).seconds > 1.5 * bound(along_rows).seconds


def test_tiles_are_faster_than_single_elements() -> None:
    """From the slowest: threads along columns, one element per thread, tiles in shared memory, tiles in registers."""
    func = product(1024, 1024, 1024)
    decisions = [
        [[4, 256, 1], [1024, 1, 1], [1024, 1], 0, 0, 0],
        [[64, 16, 1], [64, 16, 1], [1024, 1], 0, 0, 0],
        [[64, 16, 1], [64, 16, 1], [64, 16], 1, 0, 1, 0, 0],
        [[16, 16, 4], [16, 16, 4], [64, 16], 1, 2, 1, 2, 4],
    ]
    seconds = [predicted(func, each).seconds for each in decisions]
    assert all(slow > 2 * fast for slow, fast in pairwise(seconds))


def test_more_blocks_than_multiprocessors_are_faster_than_one() -> None:
    func = product(256, 256, 64)
    many, few = ([[rows, 8, 256 // 8 // rows], [8, 8, 4], [8, 8], 0, 0, 0] for rows in (32, 8))
    assert predicted(func, many).seconds < predicted(func, few).seconds


# -- refused --------------------------------------------------------------------------------------------------------


def four_columns(s: Schedule) -> None:
    """The sums of a thread's four columns, with constant indices (unrolled loops) or variable ones."""
    block = s.get_block("c")
    local = s.cache_write(block, 0, "local")
    i, j, k = s.get_loops(block)
    outer, inner = s.split(j, [None, 4])
    s.reorder(i, outer, k, inner)
    s.reverse_compute_at(local, outer)
    if s.sample_categorical([0, 1], [0.5, 0.5]):
        s.unroll(inner)
        s.unroll(s.get_loops(local)[-1])
    s.bind(i, "blockIdx.x")
    s.bind(outer, "threadIdx.x")


def test_candidates_that_spill_or_exceed_limits_are_not_tried() -> None:
    history = History(Task("f", product(), GPU), ScheduleFn(four_columns), Random(0))
    assert history.candidate([1]) is not None and history.candidate([0]) is None
    big = predicted(product(64, 64, 64), [[1, 8, 8], [1, 8, 8], [64, 1], 0, 0, 0])
    (kernel,) = big.kernels
    assert big.problem == ""
    assert "registers" in replace(kernel, registers=300).problem(big.gpu)
    assert "registers" in replace(kernel, registers=128, threads=1024).problem(big.gpu)
    assert "shared memory" in replace(kernel, shared_bytes=228 * 1024).problem(big.gpu)
    assert "threads" in replace(kernel, threads=2048).problem(big.gpu)
    spilled = big.assembled([Resources(registers=255, stack_bytes=0, spill_bytes=64, shared_bytes=0)])
    assert spilled.problem == "64 bytes of a thread are not in registers"


def test_an_assembler_counts_registers() -> None:
    """Candidates with 8 and 64 sums per thread."""
    small, big = (sketch(product(64, 64, 64), [[1, 64 // n, n], [1, 8, 8], [64, 1], 0, 0, 0]) for n in (1, 8))
    found = [Assemble(each.func, GPU.export()).run() for each in (small, big)]
    ((few,), (many,)) = found
    assert few.registers < 48 < many.registers <= 128 and many.spill_bytes == many.stack_bytes == 0
    account = gpu_account(big.func, GPU, {}).assembled([many])
    assert [kernel.registers for kernel in account.kernels] == [many.registers]


def rows_of_a_product() -> PrimFunc:
    """``x @ w.T``, float32, x [n, 48], w [64, 48]: a kernel of large tiles for many rows, and one of small tiles."""
    x, w = te.placeholder((te.var("n"), 48), "float32", "x"), te.placeholder((64, 48), "float32", "w")
    k = te.reduce_axis(48, "k")
    y = te.compute((x.shape[0], 64), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    return te.create_prim_func([x, w, y])


def test_resources_are_those_of_the_kernels_that_are_launched() -> None:
    scheduled = RuleSpace(CUDA_RULES, GPU).default(Task("f", rows_of_a_product(), GPU))
    assert scheduled is not None
    found = Assemble(scheduled.func, GPU.export()).run()
    large, small = (each.registers for each in found)
    assert large > small
    for rows, registers in ((8, small), (1 << 15, large)):
        account = gpu_account(scheduled.func, GPU, {"n": rows}).assembled(found)
        assert [kernel.registers for kernel in account.kernels] == [registers]


# -- searches -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(1) as started:
        yield started


def neighbours() -> PrimFunc:
    """``b[i, j] = a[i, max(j - 1, 0)]``, float32 [8, 48]."""
    a = te.placeholder((8, 48), "float32", "a")
    b = te.compute((8, 48), lambda i, j: a[i, te.max(j - 1, 0)], name="b")
    return te.create_prim_func([a, b])


def through_shared_memory(s: Schedule) -> None:
    i, j = s.get_loops("b")
    s.bind(i, "blockIdx.x")
    copy = s.cache_read("b", 0, "shared")
    s.compute_at(copy, i)
    s.bind(s.get_loops(copy)[-1], "threadIdx.x")
    s.bind(j, "threadIdx.x")


def without_barriers(s: Schedule) -> None:
    through_shared_memory(s)
    s.func = s.func.with_attr("cuda.explicit_sync", True)


def wrong(s: Schedule) -> None:
    along_rows(s)
    s.func = DEFECTS["wrong"](s.func)


@pytest.mark.parametrize(
    ("make", "change", "failure"),
    [
        (scaled, along_rows, ""),
        (scaled, wrong, "wrong result 0: its error is"),
        (neighbours, through_shared_memory, ""),
        (neighbours, without_barriers, "threads in descending order: wrong result 0"),
    ],
)
def test_results_of_candidates_are_checked(
    processes: Processes, tmp_path: Path, make: Callable[[], PrimFunc], change: Callable[[Schedule], None], failure: str
) -> None:
    predictor, s = Predictor(Task("f", make(), GPU), processes, tmp_path, PATIENT), Schedule(make())
    change(s)
    (made,) = predictor.build([Candidate(s.func, s.trace)])
    assert isinstance(made, Ready)
    found = predictor.check(made)
    assert found is None if failure == "" else found is not None and found.failure.startswith(failure)


def gated(rows: int = 64, columns: int = 512) -> PrimFunc:
    """``silu(x) * y``, float16."""
    x, y = (te.placeholder((rows, columns), "float16", name) for name in "xy")
    return te.create_prim_func([x, y, te.elementwise("gated", lambda a, b: a * te.sigmoid(a) * b, x, y)])


def normalized(length: int = 256) -> PrimFunc:
    """An RMS norm, float16 [n, length]."""
    x, w = te.placeholder((te.var("n"), length), "float16", "x"), te.placeholder((length,), "float16", "w")
    return te.create_prim_func([x, w, rms_norm.te(x, w)])


@pytest.mark.parametrize(
    ("make", "space"),
    [
        (product, GpuSketches()),
        (gated, RuleSpace(CUDA_RULES, GPU)),
        (normalized, RuleSpace(CUDA_RULES, GPU)),
    ],
)
def test_a_search_without_a_gpu_records_predictions(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], PrimFunc], space: Space
) -> None:
    monkeypatch.setattr(predict, "find_assembler", lambda: None)
    task, database = Task("f", make(), GPU, {"n": 8}), Database(tmp_path / "db")
    assert not is_timed(GPU) and is_timed(Target("cpu"))
    run = Search(task, space, database, processes, tmp_path, RandomSearch(), PATIENT)
    run.run(4)
    best, seconds = run.settle(), [t.seconds for t in run.history.trials if t.seconds is not None]
    assert len(set(seconds)) >= 3
    assert best.predicted and best.seconds == min(seconds)
    database.close()
    assert Database(tmp_path / "db").best(task.func, GPU) == best
    rules = (Tuned(Database(tmp_path / "db")), *CUDA_RULES)
    applied = ApplySchedules(rules, GPU).run(IRModule({"f": make()})).of_type(PrimFunc)["f"]
    assert applied.attrs["schedule"] == "Tuned"
    assert structural_equal(applied.body, best.schedule(make()).func.body)


def record(seconds: float | None, is_predicted: bool, columns: int = 4) -> Record:
    s = Schedule(scaled())
    s.split(s.get_loops("b")[1], [None, columns])
    return Record(s.trace, seconds, GPU.export(), predicted=is_predicted)


@pytest.mark.parametrize("first", [True, False])
def test_a_measurement_comes_before_any_prediction(tmp_path: Path, first: bool) -> None:
    database = Database(tmp_path)
    for each in (record(2e-6, first), record(2e-6, not first), record(1e-6, True, 8)):
        database.add(scaled(), each)
    database.close()
    for found in (database, Database(tmp_path)):
        assert found.best(scaled(), GPU) == record(2e-6, False)


def test_a_search_on_a_gpu_begins_with_the_best_predictions(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "runs_here", lambda target: True)
    database = Database()
    for seconds, columns in ((3e-6, 4), (1e-6, 8), (2e-6, 16)):
        database.add(scaled(), record(seconds, True, columns))
    run = Search(Task("f", scaled(), GPU), default_space(GPU), database, processes, tmp_path, RandomSearch(), PATIENT)
    assert type(run.measurer) is Measurer and not run.history.trials
    proposed: list[Candidate] = []
    monkeypatch.setattr(run.measurer, "build", lambda candidates: proposed.extend(candidates) or [])
    run.run(4)
    assert [c.trace.as_json() for c in proposed[1:]] == [record(0, True, n).trace.as_json() for n in (8, 16, 4)]


def test_kernels_that_rules_write_are_left_to_the_rules() -> None:
    """The default of a product, whose trace has no steps, is the fastest."""
    task = Task("f", product(), GPU)
    default = default_space(GPU).default(task)
    assert default is not None and not default.trace
    database = Database()
    database.add(task.func, Record(default.trace, 1e-6, GPU.export(), predicted=True))
    assert Tuned(database).apply(product(), GPU) is None


def test_kernels_that_rules_write_have_a_predicted_time(processes: Processes, tmp_path: Path) -> None:
    task = Task("f", rows_of_a_product(), GPU, {"n": 8})
    run = Search(task, default_space(GPU), Database(), processes, tmp_path, RandomSearch(), PATIENT)
    run.run(1)
    assert [trial.failure for trial in run.history.trials] == [""]
    assert run.default_seconds is not None
