"""ONNX's operators that make and rearrange tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import Size, axis_of, constant_size, plain, rank, size_of
from .arrays import Row, numbers


def _reshape(x: Expr, shape: Any, *, allowzero: int = 0) -> Expr:
    sizes: list[Any] = numbers(shape)
    if not allowzero:
        sizes = [size_of(x, i) if isinstance(s, int) and s == 0 else s for i, s in enumerate(sizes)]
    return blocks.reshape(x, sizes)


def _flatten(x: Expr, *, axis: int = 1) -> Expr:
    first: Size = 1
    for i in range(axis_of(x, axis)):
        first = plain(first * size_of(x, i))
    return blocks.reshape(x, (first, -1))


def _squeeze(x: Expr, axes: Any = None) -> Expr:
    return ops.squeeze(x, axis=None if axes is None else tuple(numbers(axes)))


def _split(x: Expr, parts: Any = None, *, axis: int = 0, num_outputs: int | None = None) -> Expr:
    """Without ``parts``: equal parts, of which the last one may be smaller if the size is known."""
    size = size_of(x, axis_of(x, axis))
    if parts is not None:
        places: Any = tuple(int(e) for e in np.cumsum(numbers(parts))[:-1])
    elif num_outputs is None:
        raise ValueError("split: got neither sizes nor num_outputs")
    elif isinstance(size, int):
        part = -(-size // num_outputs)
        places = tuple(part * n for n in range(1, num_outputs))
    else:
        places = num_outputs
    return ops.split(x, indices_or_sections=places, axis=axis)


def _slice(x: Expr, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Expr:
    first, last = numbers(starts), numbers(ends)
    places = range(len(first)) if axes is None else numbers(axes)
    strides = [1] * len(first) if steps is None else numbers(steps)
    for axis, start, end, step in zip(places, first, last, strides, strict=True):
        if step < 0:
            taken = np.arange(constant_size(x, axis))[start:end:step]
            x = ops.take(x, blocks.number_table(taken), axis=axis, mode="fast")
            continue
        size = size_of(x, axis_of(x, axis))
        stop = size if isinstance(end, int) and end >= 2**31 - 1 else end
        x = ops.strided_slice(x, (axis,), (start,), (stop,), (step,))
    return x


def _expand(x: Expr, shape: Any) -> Expr:
    """Row of Expand; target sizes of 1 keep the sizes of ``x``."""
    sizes: list[Any] = numbers(shape)
    own: list[Any] = [plain(s) for s in shape_of(x)]
    sizes, own = [1] * (len(own) - len(sizes)) + sizes, [1] * (len(sizes) - len(own)) + own
    return ops.broadcast_to(
        x, tuple(o if isinstance(s, int) and s == 1 else s for s, o in zip(sizes, own, strict=True))
    )


def _pad(x: Expr, widths: Any, value: Any = None, axes: Any = None, *, mode: bytes = b"constant") -> Expr:
    """Negative widths crop, in mode constant."""
    given, count = numbers(widths), len(widths) // 2
    places = range(count) if axes is None else [axis_of(x, a) for a in numbers(axes)]
    pairs = [(0, 0)] * rank(x)
    for n, axis in enumerate(places):
        pairs[axis] = (given[n], given[count + n])
    if mode == b"constant":
        return blocks.pad_or_crop(x, pairs, 0.0 if value is None else float(numbers(value)[0]))
    how: Any = mode.decode()
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            at = np.pad(np.arange(constant_size(x, axis)), (before, after), how)
            x = ops.take(x, blocks.number_table(at), axis=axis, mode="fast")
    return x


def _depth_to_space(x: Expr, *, blocksize: int, mode: bytes = b"DCR") -> Expr:
    n, c, h, w = shape_of(x)
    b, rest = blocksize, plain(c // (blocksize * blocksize))
    depth_first = mode == b"DCR"
    parts: tuple[Size, ...] = (n, b, b, rest, h, w) if depth_first else (n, rest, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3)
    return ops.reshape(ops.permute_dims(ops.reshape(x, parts), axes=order), (n, rest, plain(h * b), plain(w * b)))


def _space_to_depth(x: Expr, *, blocksize: int) -> Expr:
    n, c, h, w = shape_of(x)
    b, rows, columns = blocksize, plain(h // blocksize), plain(w // blocksize)
    parts = ops.reshape(x, (n, c, rows, b, columns, b))
    return ops.reshape(ops.permute_dims(parts, axes=(0, 3, 5, 1, 2, 4)), (n, plain(c * b * b), rows, columns))


def _range(start: Any, limit: Any, delta: Any) -> Expr:
    """Row of Range with a symbolic size."""
    (first,), (last,), (step,) = (numbers(v) for v in (start, limit, delta))
    return ops.arange(first, last, step, dtype="int64")


def _filled(shape: Any, *, value: onnx.TensorProto | None = None) -> Expr:
    number = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    return blocks.filled(numbers(shape), number.item(), str(number.dtype))


SHAPES: dict[str, Row] = {
    "Concat": lambda *parts, axis: ops.concat(parts, axis=axis),
    "ConstantOfShape": _filled,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Identity": lambda x: x,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda x, times: ops.tile(x, repeats=tuple(numbers(times))),
    "Transpose": lambda x, *, perm=None: ops.permute_dims(x, axes=None if perm is None else tuple(perm)),
    "Trilu": lambda x, k=None, *, upper=1: (ops.triu if upper else ops.tril)(x, k=0 if k is None else numbers(k)[0]),
    "Unsqueeze": lambda x, axes: ops.expand_dims(x, axis=tuple(numbers(axes))),
}
