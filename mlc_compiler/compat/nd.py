"""``tvm.nd``: numpy arrays with the method ``numpy``; functions for GPUs copy them to the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dtype import to_numpy
from .runtime import Device


class NDArray(np.ndarray):
    """An array in host memory."""

    def numpy(self) -> np.ndarray:
        """A copy as a plain numpy array."""
        return np.array(self, subok=False)


def array(data: Any, device: Device | None = None) -> NDArray:
    """Copy ``data``, an array or nested lists of numbers. device: ignored, arrays are in host memory."""
    return np.array(data, order="C").view(NDArray)


def empty(shape: Sequence[int], dtype: str = "float32", device: Device | None = None) -> NDArray:
    """An array for results, initially zero. device: ignored, arrays are in host memory."""
    return np.zeros(tuple(shape), to_numpy(dtype)).view(NDArray)


def as_results(value: Any) -> Any:
    """Convert the numpy arrays in a compiled function's result to NDArray."""
    if isinstance(value, tuple):
        return tuple(map(as_results, value))
    return value.view(NDArray) if isinstance(value, np.ndarray) else value
