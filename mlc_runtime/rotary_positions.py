"""Positions for rotation in models where an image takes fewer of them than it has tokens (Qwen2-VL, section 2.1).

A token of text has the same position on all axes. Tokens of an image of R x C tokens have the position of the first one
in time, and this plus their row and column in height and width; what follows begins max(R, C) positions after it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Cell = Callable[[int], tuple[int, int, int]]
"""From the id of a token of an image to its index in the image, and the image's rows and columns."""
AXES = 3


class RotaryPositions:
    """For each row of the pool, by how much positions differ from places, and from which place on."""

    def __init__(self, rows: int):
        self._shifts: list[list[tuple[int, int]]] = [[] for _ in range(rows)]

    def shift(self, row: int, place: int) -> int:
        """What to add to a place of text to get its position."""
        return next((shift for begin, shift in reversed(self._shifts[row]) if begin <= place), 0)

    def fork(self, row: int, length: int, copy: int) -> None:
        self._shifts[copy] = [(begin, shift) for begin, shift in self._shifts[row] if begin <= length]

    def extend(self, row: int, begin: int, ids: np.ndarray, cell: Cell) -> np.ndarray:
        """The positions of tokens that a sequence is extended by from place ``begin`` on, int32 [AXES, n]."""
        self.fork(row, begin, row)
        positions = np.empty((AXES, len(ids)), np.int32)
        first = 0
        while first < len(ids):
            place = begin + first
            if ids[first] >= 0:
                images = np.flatnonzero(ids[first:] < 0)
                stop = first + int(images[0]) if len(images) else len(ids)
                positions[:, first:stop] = np.arange(place, place + stop - first) + self.shift(row, place)
            else:
                index, rows, columns = cell(int(ids[first]))
                stop = min(first + rows * columns - index, len(ids))
                base = place - index + self.shift(row, place - index)
                cells = np.arange(index, index + stop - first)
                positions[:, first:stop] = base + np.stack([0 * cells, cells // columns, cells % columns])
                self._shifts[row].append((begin + stop, base + max(rows, columns) - begin - stop))
            first = stop
        return positions
