"""Operators on shapes with symbolic sizes: numpy arrays of objects; and evaluation of operators on constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ...ir.expr import as_expr, maximum, minimum
from ..values import Size, plain

Row = Callable[..., Any]


def dtype_named(number: int) -> str:
    """The dtype of a ``TensorProto.DataType``."""
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))


def numbers(value: Any) -> list[Any]:
    """The elements of a known value: numbers, or symbolic sizes."""
    return [plain(v) if value.dtype == object else v.item() for v in np.ravel(value)]


def evaluated(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray]:
    """The results of an operator on constants, by onnx's reference evaluator. Raises ValueError where that fails."""
    feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
    try:
        results = ReferenceEvaluator(node, opsets={"": opset}).run(None, feeds)
    except Exception as error:
        raise ValueError(f"evaluation at import: {error}") from error
    return [np.asarray(r) for r in results]


def _slice(x: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    index = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else axes
    for place, start, end, step in zip(places, starts, ends, np.ones(len(starts), int) if steps is None else steps):
        index[place] = slice(int(start), int(end), int(step))
    return x[tuple(index)]


def _extreme(choose: Callable[[Size, Size], Size]) -> Row:
    return lambda *parts: reduce(np.frompyfunc(lambda a, b: plain(choose(as_expr(a), as_expr(b))), 2, 1), parts)


def _reshaped(x: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    return x.reshape([x.shape[i] if s == 0 and not allowzero else int(s) for i, s in enumerate(shape)])


def _squeezed(x: np.ndarray, axes: Any = None) -> np.ndarray:
    return np.squeeze(x, None if axes is None else tuple(numbers(axes)))


def concatenated(*parts: Any, axis: int) -> np.ndarray:
    """Concatenate shapes, which may contain symbolic sizes."""
    return np.concatenate([np.asarray(p) for p in parts], axis)


ROWS: dict[str, Row] = {
    "Add": lambda a, b: a + b,
    "Cast": lambda x, *, to, saturate=1: x,
    "Concat": concatenated,
    "Div": lambda a, b: a // b,
    "Equal": lambda a, b: a == b,
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Gather": lambda x, places, *, axis=0: np.asarray(np.take(x, places.astype(int), axis)),
    "Identity": lambda x: x,
    "Max": _extreme(maximum),
    "Min": _extreme(minimum),
    "Mod": lambda a, b, *, fmod=0: a % b,
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "ReduceProd": lambda x, axes=None, *, keepdims=1, noop_with_empty_axes=0: np.prod(x, keepdims=bool(keepdims)),
    "Reshape": _reshaped,
    "Slice": _slice,
    "Squeeze": _squeezed,
    "Sub": lambda a, b: a - b,
    "Transpose": lambda x, *, perm=None: np.transpose(x, perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(numbers(axes))),
    "Where": lambda c, a, b: np.where(c, a, b),
}
"""Rows that apply when all operands are known at import, and some are symbolic."""
