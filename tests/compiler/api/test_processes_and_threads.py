"""Calls of a library from several threads, after a fork, and during interpreter shutdown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from mlc_compiler import Library, build, parse, register_func
from mlc_runtime.library import Context

ROOT = Path(__file__).resolve().parents[3]
MAIN = """
@R.function
def main(x: R.Tensor(("n", 16), "float32"), w: R.Tensor((16, 16), "float32")):
    with R.dataflow():
        y = R.nn.softmax(R.matmul(x, w))
        z = R.matmul(R.exp(y), w)
        R.output(z)
    return z
"""
W = np.random.default_rng(0).random((16, 16), np.float32)

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).random((count, 16), np.float32)


@pytest.fixture(scope="module")
def lib() -> Library:
    lib = build(parse(MAIN), num_threads=2)
    lib["main"](rows(3), W)
    return lib


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a forked process that runs ``work``: 0 if it returned true. Limited to a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_starts_its_own_workers(lib: Library):
    x = rows(300)
    expected = lib["main"](x, W)

    def calls() -> bool:
        grandchild = in_child(lambda: np.array_equal(lib["main"](x, W), expected))
        same = all(np.array_equal(lib["main"](x, W), expected) for _ in range(20))
        workers = len(os.listdir("/proc/self/task"))
        lib.context.close()
        return same and grandchild == 0 and workers == 2

    assert in_child(calls) == 0
    assert np.array_equal(lib["main"](x, W), expected)


def test_a_context_of_the_parent_ends_in_the_child_without_waiting_for_its_workers(lib: Library):
    def ends() -> bool:
        lib.context.close()
        with Context(lib, 2) as context:
            out = np.empty((4, 16), np.float32)
            lib.raw("main")(context.handle, rows(4), W, out)
        return bool(np.isfinite(out).all())

    assert in_child(ends) == 0


def test_a_fork_during_a_call_of_another_thread(lib: Library):
    x, big = rows(50), rows(100_000)
    expected = lib["main"](x, W)
    thread = Thread(target=lambda: [lib["main"](big, W) for _ in range(10)])
    thread.start()
    codes = []
    while thread.is_alive() and len(codes) < 5:
        codes.append(in_child(lambda: np.array_equal(lib["main"](x, W), expected)))
    thread.join()
    assert codes and set(codes) == {0}


def test_calls_from_threads_take_turns(lib: Library):
    wrong: list[object] = []

    def work(count: int) -> None:
        x = rows(count)
        first = lib["main"](x, W)
        for _ in range(100):
            if not np.array_equal(lib["main"](x, W), first):
                wrong.append(count)

    threads = [Thread(target=work, args=(n,)) for n in (1, 7, 40, 129)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_libraries_at_once(lib: Library):
    other = build(parse(MAIN.replace("R.exp(y)", "R.tanh(y)")), num_threads=2)
    x = rows(200)
    expected = [lib["main"](x, W), other["main"](x, W)]
    same: list[bool] = []

    def work(library: Library, wanted: object) -> None:
        same.extend(np.array_equal(library["main"](x, W), wanted) for _ in range(100))

    threads = [Thread(target=work, args=pair) for pair in zip((lib, other), expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(same) == 200 and all(same)


WAITS = """
@R.function
def main(x: R.Tensor((3,), "float32")):
    y = R.call_dps_packed("test.waits", (x,), out_sinfo=R.Tensor((3,), "float32"))
    return y
"""


def test_a_library_released_during_a_call():
    seen: list[str] = []

    @register_func("test.waits", override=True)
    def waits(x: object, out: object) -> None:
        seen.append("entered")
        while "let go" not in seen:
            time.sleep(0.001)
        np.from_dlpack(out)[:] = np.from_dlpack(x) * 2

    lib = build(parse(WAITS), num_threads=2)
    context, main, results = lib.context, lib["main"], []
    thread = Thread(target=lambda f: results.append(f(np.ones(3, np.float32))), args=(main,))
    thread.start()
    while not seen:
        time.sleep(0.001)
    with pytest.raises(RuntimeError, match="context_destroy: the context is in use by a call"):
        context.close()
    del lib, context, main
    seen.append("let go")
    thread.join()
    assert results[0].tolist() == [2, 2, 2]


ENDS = """
import atexit, threading, time
import numpy as np
from mlc_compiler import build, parse
lib = build(parse('''
@T.prim_func
def long(A: T.Buffer((1,), "float32"), rounds: T.int64):
    for i in range(rounds):
        with T.block("A"):
            vi = T.axis.reduce(rounds, i)
            A[0] = A[0] * T.float32(0.5) + T.float32(1)
'''), num_threads=2)
thread = threading.Thread(target=lib["long"], args=(np.zeros(1, np.float32), 1 << 40), daemon=True)
atexit.register(lambda: print("ended", thread.is_alive()))
thread.start()
time.sleep(0.1)
"""


def test_the_program_ends_during_a_call():
    command = [sys.executable, "-c", ENDS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("ended True\n", "")
