"""Map numpy arrays and views of them to their copies (twins) on a device, by address."""

from __future__ import annotations

import weakref
from bisect import bisect_right, insort
from collections import deque
from typing import Generic, TypeVar

import numpy as np

Twin = TypeVar("Twin")


class Mirrors(Generic[Twin]):
    """The device copies (twins) of arrays. A twin is dropped when its array and all views of it are deleted."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, Twin]] = []  # address and bytes of the array, its twin; by address
        self._ended: deque[int] = deque()  # finalizers may run in the middle of any method

    def add(self, array: np.ndarray, twin: Twin) -> None:
        """Register the twin of a contiguous array."""
        self._forget_ended()
        insort(self._rows, (array.ctypes.data, array.nbytes, twin), key=lambda row: row[0])
        weakref.finalize(_root(array), self._ended.append, array.ctypes.data).atexit = False

    def find(self, array: np.ndarray) -> tuple[Twin, int] | None:
        """The twin of the array or of the array that it is a view of, and the byte offset of its first element."""
        self._forget_ended()
        begin = array.ctypes.data
        at = bisect_right(self._rows, begin, key=lambda row: row[0]) - 1
        if at < 0 or begin + array.nbytes > self._rows[at][0] + self._rows[at][1]:
            return None
        return self._rows[at][2], begin - self._rows[at][0]

    def __len__(self) -> int:
        self._forget_ended()
        return len(self._rows)

    def clear(self) -> None:
        """Forget all twins."""
        self._rows.clear()

    def _forget_ended(self) -> None:
        while self._ended:
            ended = self._ended.popleft()
            self._rows = [row for row in self._rows if row[0] != ended]


def _root(array: np.ndarray) -> np.ndarray:
    """The array that every view of ``array`` keeps alive."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
