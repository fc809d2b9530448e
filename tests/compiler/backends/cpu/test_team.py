"""The worker team: loops whose sizes come from memory, statements between loops, more threads than cores."""

from __future__ import annotations

import ctypes
import re
import threading
from itertools import pairwise

import numpy as np
import pytest

from mlc_compiler import build
from mlc_compiler.backends import emit_llvm
from mlc_compiler.backends.cpu import team
from mlc_compiler.codegen.link import link_shared
from mlc_compiler.codegen.native import compile_modules
from mlc_compiler.pipeline import entries, pipeline, run_passes
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from mlc_runtime.library import Library

ROUNDS = 200
THREADS = (1, 2, 3, 16)

MODULE = """
@I.ir_module
class Module:
    @T.prim_func
    def steps(x: T.Buffer((64,), "int64"), sizes: T.Buffer((3,), "int64"), y: T.Buffer((64,), "int64"),
              z: T.Buffer((64,), "int64")):
        T.func_attr({"tir.is_scheduled": True})
        for i in T.parallel(64):
            y[i] = x[i] + 1
        sizes[0] = y[1] % 32 + 1
        for i in T.parallel(sizes[0]):
            y[i] = y[i] * 2
        for step in range(sizes[1]):
            for i in T.parallel(63):
                z[i] = y[i] + y[i + 1]
            for i in T.parallel(63):
                y[i] = z[i] - step
        if sizes[2] > 0:
            for i in T.parallel(64):
                y[i] = y[i] + 5
        for step in range(4):
            for i in T.parallel(63, annotations={"schedule": "dynamic"}):
                z[i + 1] = y[i] * 3 + step
            for i in T.parallel(64):
                y[i] = z[i] % 1000
        for i in T.parallel(sizes[sizes[1]]):
            y[i] = y[i] + 7
        sizes[0] = y[0]
"""


def reference(x: np.ndarray, sizes: np.ndarray, z: np.ndarray) -> np.ndarray:
    y = x + 1
    sizes[0] = y[1] % 32 + 1
    y[: sizes[0]] *= 2
    for step in range(sizes[1]):
        z[:63] = y[:63] + y[1:]
        y[:63] = z[:63] - step
    if sizes[2] > 0:
        y += 5
    for step in range(4):
        z[1:] = y[:63] * 3 + step
        y = z % 1000
    y[: sizes[sizes[1]]] += 7
    sizes[0] = y[0]
    return y


@pytest.fixture(scope="module")
def library() -> Library:
    return build(parse(MODULE))


@pytest.mark.parametrize("threads", THREADS)
def test_every_call_sees_the_results_of_the_loops_before(library: Library, threads: int):
    rng = np.random.default_rng(threads)
    loaded = Library(library.path, threads)
    for _ in range(ROUNDS):
        x = rng.integers(0, 1000, 64)
        sizes = np.array([0, rng.integers(1, 3), rng.integers(0, 2)])
        expected_sizes, expected_z = sizes.copy(), np.zeros(64, np.int64)
        expected = reference(x, expected_sizes, expected_z)
        y, z = np.zeros(64, np.int64), np.zeros(64, np.int64)
        loaded["steps"](x, sizes, y, z)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(sizes, expected_sizes)
        np.testing.assert_array_equal(z, expected_z)


COPIES = """
@I.ir_module
class Module:
    @T.prim_func
    def reversed_sums(x: T.Buffer((64,), "int64"), y: T.Buffer((64,), "int64")):
        T.func_attr({"tir.is_scheduled": True})
        doubled = T.decl_buffer((64,), "int64", scope="private")
        for i in range(64):
            doubled[i] = x[i] * 2
        for i in T.parallel(64):
            y[i] = doubled[63 - i] + x[i]
        for i in range(64):
            doubled[i] = y[i] - 1
        for i in T.parallel(64):
            x[i] = doubled[i]
"""


@pytest.mark.parametrize("threads", THREADS)
def test_every_thread_fills_its_copy_of_a_private_buffer(threads: int):
    built = build(parse(COPIES))
    loaded = Library(built.path, threads)
    for _ in range(ROUNDS):
        x = np.random.default_rng(threads).integers(0, 1000, 64)
        expected, y = 2 * x[::-1] + x, np.zeros(64, np.int64)
        loaded["reversed_sums"](x, y)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(x, expected - 1)


def test_private_buffers_take_no_loop_and_no_barrier_of_the_team():
    (kernel, *_) = emit_llvm(run_passes(parse(COPIES), (*entries(), *pipeline(Target("cpu")))), Target("cpu"))
    assert kernel.count("@mlc_team_next_loop(ptr") == 3  # two loops and the declaration
    assert kernel.count("@mlc_team_barrier(ptr") == 2


@pytest.fixture(scope="module")
def team_functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of teams in a library of their own, where they are visible."""
    target, path = Target("cpu"), tmp_path_factory.mktemp("team") / "lib.so"
    lowered = run_passes(parse(MODULE), (*entries(), *pipeline(target)))
    hidden = re.compile(r"^(define|declare) (internal|hidden) (?=.*@mlc_team_)", re.M)
    texts = [hidden.sub(r"\1 ", text) for text in emit_llvm(lowered, target)]
    link_shared(compile_modules(texts, target).objects, path, target)
    functions = ctypes.CDLL(str(path))
    for name in ("mlc_team_start", "mlc_team_stop", "mlc_team_enter", "mlc_team_worker"):
        getattr(functions, name).argtypes = [ctypes.c_void_p] + [ctypes.c_int32] * (name == "mlc_team_start")
    functions.mlc_team_take.argtypes = [ctypes.c_void_p, ctypes.c_int32] + [ctypes.c_int64] * 3
    functions.mlc_team_claim.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p]
    functions.mlc_team_claim.restype = ctypes.c_bool
    functions.mlc_team_enter.restype = functions.mlc_team_take.restype = ctypes.c_int64
    return functions


@pytest.fixture
def stopped(team_functions: ctypes.CDLL) -> np.ndarray:
    """The context of a team without workers that has run a job and was stopped, as 32-bit words."""
    room = np.zeros(team.TeamRuntime.context_bytes + 64, np.uint8)
    words = room[-room.ctypes.data % 64 :][: team.TeamRuntime.context_bytes].view(np.uint32)
    assert team_functions.mlc_team_start(words.ctypes.data, 1) == 1
    words[team.EPOCH // 4] = 2
    team_functions.mlc_team_stop(words.ctypes.data)
    return words


def test_a_stopped_team_opens_no_job(team_functions: ctypes.CDLL, stopped: np.ndarray):
    """A worker may have read that the team goes on just before it is stopped, and enter then."""
    epoch = team_functions.mlc_team_enter(stopped.ctypes.data) >> 32
    assert epoch % 2 == 0
    assert stopped[team.ACTIVE // 4] == 0


def test_a_worker_that_has_seen_the_last_epoch_ends(team_functions: ctypes.CDLL, stopped: np.ndarray):
    stopped[team.EPOCH // 4] = 0  # that of a worker that has just started
    pair = np.array([stopped.ctypes.data, 1], np.uint64)
    worker = threading.Thread(target=team_functions.mlc_team_worker, args=(pair.ctypes.data,), daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive()


def test_pieces_become_smaller_at_the_end_of_a_part(team_functions: ctypes.CDLL):
    counter = np.zeros(1, np.uint64)

    def taken(loop: int, length: int, least: int, most: int) -> list[int]:
        return list(iter(lambda: team_functions.mlc_team_take(counter.ctypes.data, loop, length, least, most), -1))

    assert taken(1, 41, 1, 6) == [0, 6, 12, 18, 24, 30, 36, 39, 40]
    assert taken(2, 3, 1, 1) == [0, 1, 2]
    assert taken(1, 41, 1, 6) == []
    assert taken(5, 41, 41, 6) == [0]
    assert taken(6, 0, 1, 1) == []


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("extent", [1, 41, (1 << 32) - 1, 1 << 34, (1 << 34) + 5])
def test_pieces_are_the_whole_loop(team_functions: ctypes.CDLL, extent: int, threads: int):
    """One thread takes its part and those of threads that do not come."""
    room = np.zeros(team.TeamRuntime.context_bytes + 64, np.uint8)
    context = room[-room.ctypes.data % 64 :]
    context[team.LOOPS :][:4].view(np.uint32)[0] = 1
    piece, found = np.zeros(4, np.int64), []
    while team_functions.mlc_team_claim(context.ctypes.data, 0, threads, extent, 0, piece.ctypes.data):
        found.append((int(piece[0]), int(piece[1])))
    assert found[0][0] == 0 and found[-1][1] == extent
    assert all(one[1] == next_one[0] and one[0] < one[1] for one, next_one in pairwise(found))
    assert len(found) == 1 if threads == 1 else len(found) > min(extent, 8) - 1
    assert int(context[team.DONE :][:8].view(np.int64)[0]) == extent


MANY_CALLS = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 5), "float32"), w: R.Tensor((5,), "float32")):
        with R.dataflow():
            y = R.sum(R.exp(R.multiply(x, w)), axis=[1], keepdims=True)
            z = R.reshape(R.sum(R.divide(x, y), axis=[0]), (5, 1))
            R.output(y, z)
        return (y, z)
"""


def test_host_code_is_not_optimized_but_the_team_is():
    *_, host, threads = emit_llvm(run_passes(parse(MANY_CALLS), (*entries(), *pipeline(Target("cpu")))), Target("cpu"))
    assert "main.job" in host and host.count("define ") == host.count(" noinline optnone")
    assert "mlc_team_barrier" in threads and "optnone" not in threads
    x, w = np.arange(35, dtype=np.float32).reshape(7, 5) / 10, np.linspace(-1, 1, 5, dtype=np.float32)
    y, z = build(parse(MANY_CALLS))["main"](x, w)
    sums = np.exp(x * w).sum(1, keepdims=True)
    np.testing.assert_allclose(np.asarray(y), sums, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(z), (x / sums).sum(0).reshape(5, 1), rtol=1e-6)
