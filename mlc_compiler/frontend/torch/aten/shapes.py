"""ATen's functions that create, rearrange and select elements, and those on sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.expr import PrimExpr, is_const
from ....relax import ops
from ....relax.info import shape_of
from ....relax.nodes import Expr
from ... import blocks
from ...indexing import index
from ...values import Number, Size, axis_of, cast, constant_size, count_of, dtype_of, plain, promoted, rank, size_of

Row = Callable[..., Any]
NO_END = 2**63 - 1
"""The end that PyTorch records for ``x[start:]``."""


def _permute(x: Expr, dims: Sequence[int]) -> Expr:
    return ops.permute_dims(x, axes=tuple(dims))


def _transpose(x: Expr, a: int, b: int) -> Expr:
    order = list(range(rank(x)))
    a, b = axis_of(x, a), axis_of(x, b)
    order[a], order[b] = b, a
    return _permute(x, order)


def _matrix_transpose(x: Expr) -> Expr:
    return x if rank(x) < 2 else _permute(x, (1, 0))


def _squeeze(x: Expr, dims: int | Sequence[int] | None = None) -> Expr:
    listed = range(rank(x)) if dims is None else [dims] if isinstance(dims, int) else dims
    axes = [axis_of(x, d) for d in listed]
    return ops.squeeze(x, axis=tuple(a for a in axes if is_const(shape_of(x)[a], 1)))


def _expand(x: Expr, sizes: Sequence[Size], implicit: bool = False) -> Expr:
    new = len(sizes) - rank(x)
    return ops.broadcast_to(
        x, tuple(size_of(x, a - new) if isinstance(s, int) and s == -1 else s for a, s in enumerate(_numbers(sizes)))
    )


def _numbers(sizes: Sequence[Size]) -> list[Any]:
    return [plain(s) for s in sizes]


def _slice(x: Expr, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1) -> Expr:
    end = NO_END if end is None else end
    if start in (None, 0) and isinstance(end, int) and end == NO_END and step == 1:
        return x
    last = size_of(x, axis_of(x, dim)) if isinstance(end, int) and end == NO_END else end
    return ops.strided_slice(x, (dim,), (start or 0,), (last,), (step,))


def _select(x: Expr, dim: int, place: Size) -> Expr:
    size = size_of(x, axis_of(x, dim))
    first = plain(size + place) if isinstance(place, int) and place < 0 else place
    at = first if isinstance(first, PrimExpr) else cast(first, "int64")
    return ops.take(x, at, axis=axis_of(x, dim), mode="fast")


def _split_with_sizes(x: Expr, sizes: Sequence[int], dim: int = 0) -> Expr:
    ends = np.cumsum(sizes)[:-1].tolist()
    return ops.split(x, indices_or_sections=tuple(ends), axis=dim)


def _split(x: Expr, size: int, dim: int = 0) -> Expr:
    return ops.split(x, indices_or_sections=tuple(range(size, constant_size(x, dim), size)), axis=dim)


def _unbind(x: Expr, dim: int = 0) -> tuple[Expr, ...]:
    return tuple(_select(x, dim, i) for i in range(constant_size(x, dim)))


def _diagonal(x: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    """The diagonal of the axes ``dim1`` and ``dim2``, as the last axis; a positive offset is above the main one."""
    moved = _permute(x, _order_with_last(x, dim1, dim2))
    places = blocks.number_table(_diagonal_places(moved, offset))
    return ops.take(_merged(moved, rank(x) - 2), places, axis=rank(x) - 2, mode="fast")


def _order_with_last(x: Expr, dim1: int, dim2: int) -> list[int]:
    """The order of axes in which ``dim1`` and ``dim2`` are the last ones."""
    last = [axis_of(x, dim1), axis_of(x, dim2)]
    return [*(i for i in range(rank(x)) if i not in last), *last]


def _diagonal_places(x: Expr, offset: int) -> np.ndarray:
    """The indices of a diagonal's elements in a flattened matrix of the last two axes, int64."""
    rows, columns = constant_size(x, -2), constant_size(x, -1)
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return max(offset, 0) + max(-offset, 0) * columns + np.arange(count) * (columns + 1)


def _merged(x: Expr, axis: int) -> Expr:
    """Merge the axes from ``axis`` on into one."""
    return ops.reshape(x, (*shape_of(x)[:axis], count_of(x, range(axis, rank(x)))))


def _diagonal_scatter(x: Expr, values: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    order = _order_with_last(x, dim1, dim2)
    moved = _permute(x, order)
    targets = ops.broadcast_to(blocks.number_table(_diagonal_places(moved, offset)), shape_of(values))
    written = ops.scatter_elements(_merged(moved, rank(x) - 2), targets, values, axis=-1)
    return _permute(ops.reshape(written, shape_of(moved)), np.argsort(order).tolist())


def _as_strided(x: Expr, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Expr:
    """Row of as_strided for contiguous tensors."""
    places = np.array(offset or 0)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(count) * step
    return ops.take(_merged(x, 0), blocks.number_table(places), axis=0, mode="fast")


def _windows(x: Expr, dim: int, size: int, step: int) -> Expr:
    """Row of unfold: windows of ``size`` elements along ``dim``, every ``step``; their elements are the last axis."""
    if not rank(x):
        return ops.broadcast_to(x, (size,))
    axis = axis_of(x, dim)
    first = np.arange(0, constant_size(x, axis) - size + 1, step)
    taken = ops.take(x, blocks.number_table(first[:, None] + np.arange(size)), axis=axis, mode="fast")
    return _permute(taken, [*(a for a in range(rank(taken)) if a != axis + 1), axis + 1])


def _triangle_indices(keep: Callable[..., np.ndarray]) -> Row:
    def row(rows: int, columns: int, offset: int = 0, dtype: str = "int64") -> Expr:
        return blocks.number_table(np.argwhere(keep(np.ones((rows, columns)), offset)).T.astype(dtype))

    return row


def _repeat(x: Expr, times: Sequence[int]) -> Expr:
    return ops.tile(x, repeats=tuple(times))


def _flip(x: Expr, dims: Sequence[int]) -> Expr:
    for dim in dims:
        x = ops.flip(x, axis=dim)
    return x


def _constant_pad(x: Expr, pad: Sequence[int], value: float = 0.0) -> Expr:
    """Row of constant_pad_nd. pad: before and after for each axis, last axis first; negative numbers crop."""
    widths = [(0, 0)] * (rank(x) - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return blocks.pad_or_crop(x, widths, value)


def _arange(start: Any, end: Any = None, step: Any = 1, dtype: str | None = None) -> Expr:
    first, last = (0, start) if end is None else (start, end)
    if all(isinstance(v, int | PrimExpr) for v in (first, last, step)):
        return ops.arange(first, last, step, dtype=dtype or "int64")
    return blocks.number_table(np.arange(first, last, step).astype(dtype or "float32"))


def _full(size: Sequence[Size], value: Number, dtype: str | None = None) -> Expr:
    return ops.full(tuple(size), cast(value, dtype or dtype_of(value)), dtype=dtype or dtype_of(value))


def _filled(value: float) -> Row:
    return lambda size, dtype="float32": blocks.filled(size, value, dtype)


def _filled_like(value: float) -> Row:
    return lambda x, dtype=None: blocks.filled(shape_of(x), value, dtype or dtype_of(x))


def _full_like(x: Expr, value: Number, dtype: str | None = None) -> Expr:
    return _full(shape_of(x), value, dtype or dtype_of(x))


def _new_full(x: Expr, size: Sequence[Size], value: Number, dtype: str | None = None) -> Expr:
    return _full(size, value, dtype or dtype_of(x))


def _on_sizes(f: Callable[[Any, Any], Any]) -> Row:
    return lambda a, b: plain(f(a, b))


ROWS: dict[str, Row] = {
    "_unsafe_view": blocks.reshape,
    "arange": _arange,
    "as_strided": _as_strided,
    "cat": lambda tensors, dim=0: ops.concat(promoted(*tensors), axis=dim),
    "constant_pad_nd": _constant_pad,
    "diagonal": _diagonal,
    "diagonal_scatter": _diagonal_scatter,
    "embedding": lambda weight, ids, *_: ops.take(weight, ids, axis=0),
    "empty.memory_format": _filled(0),
    "empty_permuted": lambda size, order, dtype="float32": blocks.filled(size, 0, dtype),
    "empty_strided": lambda size, strides, dtype="float32": blocks.filled(size, 0, dtype),
    "expand": _expand,
    "flip": _flip,
    "full": _full,
    "full_like": _full_like,
    "gather": lambda x, dim, places, sparse_grad=False: ops.gather_elements(x, places, axis=dim),
    "index.Tensor": index,
    "index_select": lambda x, dim, places: ops.take(x, places, axis=dim),
    "new_empty_strided": lambda x, size, strides, dtype=None: blocks.filled(size, 0, dtype or dtype_of(x)),
    "new_full": _new_full,
    "new_ones": lambda x, size, dtype=None: blocks.filled(size, 1, dtype or dtype_of(x)),
    "new_zeros": lambda x, size, dtype=None: blocks.filled(size, 0, dtype or dtype_of(x)),
    "ones": _filled(1),
    "ones_like": _filled_like(1),
    "permute": _permute,
    "repeat": _repeat,
    "repeat_interleave.self_int": lambda x, times, dim=None: ops.repeat(x, repeats=times, axis=dim),
    "scalar_tensor": lambda value, dtype="float32": cast(value, dtype),
    "select.int": _select,
    "slice.Tensor": _slice,
    "split.Tensor": _split,
    "split_with_sizes": _split_with_sizes,
    "squeeze": _squeeze,
    "stack": lambda tensors, dim=0: ops.stack(promoted(*tensors), axis=dim),
    "t": _matrix_transpose,
    "transpose.int": _transpose,
    "tril_indices": _triangle_indices(np.tril),
    "tril": lambda x, diagonal=0: ops.tril(x, k=diagonal),
    "triu_indices": _triangle_indices(np.triu),
    "triu": lambda x, diagonal=0: ops.triu(x, k=diagonal),
    "unbind.int": _unbind,
    "unfold": _windows,
    "unsqueeze": lambda x, dim: ops.expand_dims(x, axis=dim),
    "view": blocks.reshape,
    "zeros": _filled(0),
    "zeros_like": _filled_like(0),
    # sizes
    "sym_numel": lambda x: count_of(x, range(rank(x))),
    "sym_size.int": lambda x, dim: size_of(x, dim),
    "operator.add": _on_sizes(operator.add),
    "operator.floordiv": _on_sizes(operator.floordiv),
    "operator.getitem": operator.getitem,
    "operator.mod": _on_sizes(operator.mod),
    "operator.mul": _on_sizes(operator.mul),
    "operator.neg": lambda a: plain(0 - a),
    "operator.sub": _on_sizes(operator.sub),
}
