"""``deep_recursion`` raises the recursion limit while any thread is in a decorated call, and restores it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from mlc_compiler.ir.recursion import LIMIT, deep_recursion


@pytest.fixture(autouse=True)
def limit_of_1000() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def descend(levels: int) -> int:
    return 0 if levels == 0 else 1 + descend(levels - 1)


@deep_recursion
def deep(levels: int) -> int:
    return descend(levels)


@deep_recursion
def fail() -> None:
    deep(1)
    assert sys.getrecursionlimit() == LIMIT
    raise KeyError("name")


@deep_recursion
def inside(entered: threading.Event, leave: threading.Event) -> None:
    entered.set()
    leave.wait()


def test_a_call_may_go_deep_and_restores_the_limit() -> None:
    with pytest.raises(RecursionError):
        descend(2000)
    assert deep(2000) == 2000
    assert sys.getrecursionlimit() == 1000


def test_errors_restore_the_limit() -> None:
    with pytest.raises(KeyError):
        fail()
    with pytest.raises(RecursionError):
        deep(2 * LIMIT)
    assert sys.getrecursionlimit() == 1000


def test_a_higher_limit_stays() -> None:
    sys.setrecursionlimit(LIMIT + 1000)
    assert deep(LIMIT) == LIMIT
    assert sys.getrecursionlimit() == LIMIT + 1000


def test_a_limit_set_during_the_call_stays() -> None:
    deep_recursion(sys.setrecursionlimit)(3000)
    assert sys.getrecursionlimit() == 3000


def test_the_last_of_several_threads_restores_it() -> None:
    events = [(threading.Event(), threading.Event()) for _ in range(2)]
    threads = [threading.Thread(target=inside, args=pair) for pair in events]
    for thread, (entered, _) in zip(threads, events, strict=True):
        thread.start()
        entered.wait()
    limits = []
    for thread, (_, leave) in zip(threads, events, strict=True):
        limits.append((deep(2000), sys.getrecursionlimit()))
        leave.set()
        thread.join()
    assert limits == [(2000, LIMIT), (2000, LIMIT)]
    assert sys.getrecursionlimit() == 1000


def test_many_threads_at_once() -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.extend(deep(1500) for _ in range(30))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1500] * 240
    assert sys.getrecursionlimit() == 1000


def in_child(check: str) -> int:
    """The exit status of a forked process that evaluates ``check``."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if eval(check) else 1)
    return os.waitpid(pid, 0)[1]


def test_a_forked_process_has_the_limit_of_the_thread_that_forked() -> None:
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=inside, args=(entered, leave))
    thread.start()
    entered.wait()
    try:
        assert in_child("sys.getrecursionlimit() == 1000 and deep(2000) == 2000") == 0
        assert deep_recursion(in_child)("sys.getrecursionlimit() == LIMIT") == 0
    finally:
        leave.set()
        thread.join()
    assert sys.getrecursionlimit() == 1000
