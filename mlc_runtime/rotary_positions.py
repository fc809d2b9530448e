"""Multi-axis rotary positions (M-RoPE): an image takes fewer positions than it has tokens (Qwen2-VL, section 2.1).

The axes are time, height and width. A text token has the same position p on all axes. In an image of R x C tokens whose
first token has position p, the token at (r, c) has positions (p, p + r, p + c); the next token has p + max(R, C).
A token's index in its sequence is its place, to tell it from its positions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Cell = Callable[[int], tuple[int, int, int]]
"""Maps the id of an image token to its index in the image, and the image's rows and columns."""
AXES = 3


class RotaryPositions:
    """The offsets of positions from places, for each row of the pool and from which place on."""

    def __init__(self, rows: int):
        self._shifts: list[list[tuple[int, int]]] = [[] for _ in range(rows)]

    def shift(self, row: int, place: int) -> int:
        """The offset from the place of a text token to its position."""
        return next((shift for begin, shift in reversed(self._shifts[row]) if begin <= place), 0)

    def fork(self, row: int, length: int, copy: int) -> None:
        self._shifts[copy] = [(begin, shift) for begin, shift in self._shifts[row] if begin <= length]

    def extend(self, row: int, begin: int, ids: np.ndarray, cell: Cell) -> np.ndarray:
        """Extend a sequence at place ``begin`` by tokens; returns their positions, int32 [AXES, n]."""
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
