"""Operators on values known at import (shapes, constants): numpy arrays, of objects if sizes are symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from ..values import plain

Row = Callable[..., Any]


def numbers(value: Any) -> list[Any]:
    """The elements of a known value: numbers, or symbolic sizes."""
    return [plain(v) if value.dtype == object else v.item() for v in np.ravel(value)]


def _div(a: Any, b: Any) -> Any:
    return a // b if np.asarray(a).dtype.kind in "iO" else a / b


def _cast(x: np.ndarray, *, to: int, saturate: int = 1) -> np.ndarray:
    return x if x.dtype == object else x.astype(onnx.helper.tensor_dtype_to_np_dtype(to))


def _slice(x: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    index = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else axes
    for place, start, end, step in zip(places, starts, ends, np.ones(len(starts), int) if steps is None else steps):
        index[place] = slice(int(start), int(end), int(step))
    return x[tuple(index)]


def _range(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


def _filled(shape: np.ndarray, *, value: Any = None) -> np.ndarray:
    number = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    return np.full(shape.astype(int), number.item(), number.dtype)


def _constant(**attrs: Any) -> np.ndarray:
    ((kind, value),) = attrs.items()
    if kind == "value":
        return onnx.numpy_helper.to_array(value)
    return np.array(value, np.float32 if "float" in kind else np.int64)


def _reshaped(x: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    return x.reshape([x.shape[i] if s == 0 and not allowzero else int(s) for i, s in enumerate(shape)])


def _squeezed(x: np.ndarray, axes: Any = None) -> np.ndarray:
    return np.squeeze(x, None if axes is None else tuple(numbers(axes)))


def concatenated(*parts: Any, axis: int) -> np.ndarray:
    """Concatenate shapes, which may contain symbolic sizes."""
    return np.concatenate([np.asarray(p) for p in parts], axis)


ROWS: dict[str, Row] = {
    "Add": lambda a, b: a + b,
    "Cast": _cast,
    "Concat": concatenated,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Div": _div,
    "Equal": lambda a, b: a == b,
    "Gather": lambda x, places, *, axis=0: np.asarray(np.take(x, places.astype(int), axis)),
    "Identity": lambda x: x,
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "Range": _range,
    "Reshape": _reshaped,
    "Slice": _slice,
    "Sqrt": np.sqrt,
    "Squeeze": _squeezed,
    "Sub": lambda a, b: a - b,
    "Transpose": lambda x, *, perm=None: np.transpose(x, perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(numbers(axes))),
    "Where": lambda c, a, b: np.where(c, a, b),
}
"""Rows that apply when all operands are known at import."""
