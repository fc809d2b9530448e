"""Resampling of images and signals along axes, as tables of indices and weights that are computed at import."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..relax import ops
from ..relax.info import shape_of
from ..relax.nodes import Expr, constant
from .values import ImportModelError, axis_of, count_of, dtype_of, rank, size_of

TAPS = {"linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Neighbours of a position, from the element below it on."""
NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


@dataclass(frozen=True)
class Resampling:
    """How the positions of results are found in the input and what is computed there.

    kind: ``nearest``, ``linear`` or ``cubic`` (Keys 1981 with the coefficient ``a``). coordinates: ``half_pixel``,
    ``half_pixel_symmetric``, ``asymmetric``, ``align_corners`` or ``pytorch_half_pixel``, as in ONNX's Resize.
    rounding: of ``nearest``, a key of ``NEAREST``. antialias: where results are fewer than elements, the kernel is
    stretched by their ratio. exclude_outside: elements outside the input have no weight; otherwise they equal the
    nearest one.
    """

    kind: str
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def positions(self, length: int, count: int, scale: float) -> np.ndarray:
        """Positions of ``count`` results among ``length`` elements, float64; scale: results per element."""
        at = np.arange(count, dtype=np.float64)
        match self.coordinates:
            case "half_pixel":
                return (at + 0.5) / scale - 0.5
            case "half_pixel_symmetric":
                centre = length / 2 * (1 - count / (length * scale))
                return centre + (at + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return (at + 0.5) / scale - 0.5 if count > 1 else at
            case "asymmetric":
                return at / scale
            case "align_corners":
                return at * (length - 1) / (count - 1) if count > 1 else at
        raise ImportModelError(
            f"coordinates: got {self.coordinates!r}; "
            "expected half_pixel, half_pixel_symmetric, pytorch_half_pixel, asymmetric or align_corners"
        )

    def taps(self, length: int, count: int, scale: float) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Terms of the results: indices, int64 [count], and weights, float64 [count], None where all are 1."""
        positions = self.positions(length, count, scale)
        if self.kind == "nearest":
            if self.rounding not in NEAREST:
                raise ImportModelError(f"rounding: got {self.rounding!r}; expected one of {', '.join(NEAREST)}")
            return [(_clipped(NEAREST[self.rounding](positions), length), None)]
        if self.kind not in TAPS:
            raise ImportModelError(f"mode: got {self.kind!r}; expected nearest, linear or cubic")
        if self.kind == "linear" and not self.antialias:
            positions = np.clip(positions, 0, length - 1)
        below, stretch = np.floor(positions), max(1 / scale, 1.0) if self.antialias else 1.0
        reach = math.ceil(stretch * len(TAPS[self.kind]) / 2)
        taps = range(1 - reach, reach + 1)
        places = [below + t for t in taps]
        weights = [self._weight(np.abs(positions - at) / stretch) for at in places]
        if self.exclude_outside:
            weights = [np.where((at >= 0) & (at < length), w, 0.0) for at, w in zip(places, weights, strict=True)]
        if self.exclude_outside or self.antialias:
            total = sum(weights)
            weights = [w / total for w in weights]
        return [(_clipped(at, length), w) for at, w in zip(places, weights, strict=True)]

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        if self.kind == "linear":
            return np.maximum(1 - distance, 0.0)
        x, a = distance, self.a
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * x * a - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _clipped(indices: np.ndarray, length: int) -> np.ndarray:
    return np.clip(indices, 0, length - 1).astype(np.int64)


def weighted(x: Expr, axis: int, weights: np.ndarray) -> Expr:
    """Combine the elements along ``axis`` linearly. weights: [count, length], one row for each result."""
    table = constant(weights.astype(dtype_of(x)))
    if axis == rank(x) - 1:
        return ops.linear(x, table)
    shape = shape_of(x)
    lines = ops.reshape(x, (*shape[: axis + 1], count_of(x, range(axis + 1, rank(x)))))
    return ops.reshape(ops.matmul(table, lines), (*shape[:axis], len(weights), *shape[axis + 1 :]))


def resample(
    x: Expr, axes: Sequence[int], counts: Sequence[int | None], scales: Sequence[float | None], how: Resampling
) -> Expr:
    """``x`` with ``counts`` elements along ``axes``; scales: results per element, None for ``count / length``.

    A count of None is ``floor(length * scale)``. Sizes along the axes must be static, except where elements are
    repeated a whole number of times.
    """
    for axis, count, scale in zip(axes, counts, scales, strict=True):
        x = _along(x, axis_of(x, axis), count, scale, how)
    return x


def _along(x: Expr, axis: int, count: int | None, scale: float | None, how: Resampling) -> Expr:
    length = size_of(x, axis)
    if not isinstance(length, int):
        if how.kind == "nearest" and scale and scale == int(scale):
            return ops.repeat(x, repeats=int(scale), axis=axis)
        raise ImportModelError(f"resampling axis {axis}: got the symbolic size {length}; expected a number")
    if count is None:
        assert scale is not None
        count = math.floor(length * scale)
    total = None
    for indices, weights in how.taps(length, count, scale or count / length):
        term = ops.take(x, constant(indices), axis=axis, mode="fast")
        if weights is not None:
            shape = (count, *(1 for _ in range(rank(x) - axis - 1)))
            term = ops.multiply(term, constant(weights.astype(dtype_of(x)).reshape(shape)))
        total = term if total is None else ops.add(total, term)
    assert total is not None
    return total
