"""Recursion over deep trees: visitors make a few calls per level, which exceeds Python's default limit of 1000."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from threading import Lock, get_ident
from typing import ParamSpec, TypeVar

LIMIT = 5000

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Python has one limit for all threads: it is raised while any thread is in a decorated function, and restored when the
# last one returns.
_lock = Lock()
_threads: set[int] = set()
_before = 0


def deep_recursion(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator: run the function with a recursion limit of at least ``LIMIT``, and restore the limit afterwards."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        thread = get_ident()
        if thread in _threads:
            return function(*args, **kwargs)
        _enter(thread)
        try:
            return function(*args, **kwargs)
        finally:
            _leave(thread)

    return call


def _enter(thread: int) -> None:
    global _before
    with _lock:
        if not _threads:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, LIMIT))
        _threads.add(thread)


def _leave(thread: int) -> None:
    with _lock:
        _threads.discard(thread)
        _restore()


def _restore() -> None:
    """Restore the limit, unless a thread is in a decorated function or the limit was changed in the meantime."""
    if not _threads and sys.getrecursionlimit() == max(_before, LIMIT):
        sys.setrecursionlimit(_before)


def _after_fork() -> None:
    """After a fork only the forking thread exists in the child: remove the others from ``_threads``."""
    if _threads:
        _threads.intersection_update({get_ident()})
        _restore()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)
