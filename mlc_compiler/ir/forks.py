"""Work in forked processes, which inherit their inputs: a parallel map, whose results are pickled, and checks."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from io import BytesIO
from operator import attrgetter
from struct import Struct
from typing import Any, TypeVar

from .visitor import field_names

Item = TypeVar("Item")
Result = TypeVar("Result")

NUMBER = Struct("<H")
MOST_ITEMS = 1 << 14  # item numbers fit in a pipe


def at_once(work: Callable[[Item], Result], items: Sequence[Item], processes: int) -> list[Result]:
    """``[work(item) for item in items]``, computed by this process and ``processes - 1`` forked ones.

    Each process takes the next item when it finishes one: the largest items should come first. Results of forked
    processes are copies, in which nodes of the IR are the same objects only within a result. An item that fails in one,
    or whose result cannot be pickled, is computed again here, so that errors are raised in this process.
    """
    if processes < 2 or not 2 <= len(items) <= MOST_ITEMS or not hasattr(os, "fork"):
        return [work(item) for item in items]
    queue = _Queue(len(items))
    others = [_Fork(lambda: {i: work(items[i]) for i in queue}) for _ in range(min(processes, len(items)) - 1)]
    try:
        done = {i: work(items[i]) for i in queue}
        for other in others:
            done |= other.results()
    finally:
        queue.close()
        for other in others:
            other.end()
    return [done[i] if i in done else work(item) for i, item in enumerate(items)]


class BackgroundChecks:
    """Checks that run in forked processes while this one goes on.

    Leaving the context waits for them. A check that failed is repeated in this process, so that its error is raised
    here, in place of any other.
    """

    def __init__(self, processes: int):
        self.processes = processes
        self.running: list[tuple[Callable[[], object], _Fork]] = []

    def start(self, check: Callable[[], object]) -> None:
        """Start a check, which raises an error when it fails; with one process, run it now."""
        if self.processes < 2 or not hasattr(os, "fork"):
            check()
        else:
            self.running.append((check, _Fork(lambda: _passed(check))))

    def __enter__(self) -> BackgroundChecks:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            for check, fork in self.running:
                if not fork.results():
                    check()
        finally:
            for _, fork in self.running:
                fork.end()


def _passed(check: Callable[[], object]) -> dict[int, None]:
    check()
    return {0: None}


class _Queue:
    """A queue of the numbers 0 to ``count - 1``; each number is taken by one of the processes that iterate over it."""

    def __init__(self, count: int):
        self.read, write = os.pipe()
        with open(write, "wb") as pipe:
            pipe.write(b"".join(map(NUMBER.pack, range(count))))

    def __iter__(self) -> Iterator[int]:
        while data := os.read(self.read, NUMBER.size):
            yield NUMBER.unpack(data)[0]

    def close(self) -> None:
        os.close(self.read)


class _Fork:
    """A forked process that computes results by number and sends all of them at the end; none when it fails."""

    def __init__(self, work: Callable[[], dict[int, Any]]):
        self.pipe, write = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                os.close(self.pipe)  # so that writing fails when the parent has ended
                data = dumped(work())
                with open(write, "wb") as pipe:
                    pipe.write(data)
            finally:
                os._exit(0)
        os.close(write)

    def results(self) -> dict[int, Any]:
        """Wait for the results."""
        with open(os.dup(self.pipe), "rb") as pipe:
            data = pipe.read()
        try:
            found: dict[int, Any] = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError):
            return {}
        return found

    def end(self) -> None:
        """Kill the process if it still runs."""
        os.close(self.pipe)
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def dumped(tree: Any) -> bytes:
    """Pickle a tree of the IR."""
    data = BytesIO()
    _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(tree)
    return data.getvalue()


class _Pickler(pickle.Pickler):
    """Pickles a node as its class and its fields: several times faster than through dataclasses' ``__getstate__``."""

    def reducer_override(self, node: Any) -> Any:
        cls = type(node)
        return (cls, _fields_of[cls](node)) if cls in _fields_of or _is_node(cls) else NotImplemented


_fields_of: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _is_node(cls: type) -> bool:
    """Whether a class is a dataclass; if so, register the getter of its fields in ``_fields_of``."""
    if not is_dataclass(cls):
        return False
    names = field_names(cls)
    getter = attrgetter(*names) if len(names) > 1 else lambda node: tuple(getattr(node, name) for name in names)
    _fields_of[cls] = getter
    return True
