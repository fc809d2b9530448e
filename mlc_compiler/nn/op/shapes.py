"""Operations that rearrange elements or create tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import ExprLike
from ...relax import ops
from ..tensor import Size, Tensor, apply, apply_tuple
from .traced import traced

permute_dims = traced(ops.permute_dims)
expand_dims = traced(ops.expand_dims)
broadcast_to = traced(ops.broadcast_to)
tile = traced(ops.tile, {"x": Tensor})
flip = traced(ops.flip, {"x": Tensor})
stack = traced(ops.stack, {"x": Sequence[Tensor]})


def reshape(x: Tensor, *shape: Size | Sequence[Size]) -> Tensor:
    """The same elements with another shape, given as sizes or as one sequence; one size may be -1."""
    return x.reshape(*shape)


def permute(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Alias of ``permute_dims``."""
    return permute_dims(x, axes)


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """Insert an axis of size 1 at position ``dim`` of the result."""
    return expand_dims(x, dim)


def squeeze(x: Tensor, axis: int | Sequence[int] | None = -1) -> Tensor:
    """Remove axes of size 1; None removes all axes of size 1."""
    return apply(ops.squeeze, x, axis=axis)


def repeat(x: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element ``repeats`` times along ``axis``; None: ``x`` is flattened first."""
    return x.repeat(repeats, axis)


def split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Split along ``axis`` into a number of equal parts, or at the given indices."""
    return apply_tuple(ops.split, x, indices_or_sections=indices_or_sections, axis=axis)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split into ``chunks`` equal parts along ``dim``."""
    return split(x, chunks, dim)


def concat(x: Sequence[Tensor], dim: int | None = None, axis: int = 0) -> Tensor:
    """Concatenate tensors along ``dim``, or ``axis`` when that is None."""
    return apply(ops.concat, x, axis=axis if dim is None else dim)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad with ``value``; ``pad``: the numbers of elements before and after, for each axis in turn."""
    return apply(ops.pad, x, pad_width=pad, pad_mode=mode, pad_value=value)


def take(x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """``x`` at integer ``indices`` along ``axis``; indices are clipped to the valid range."""
    return apply(ops.take, x, indices, axis=axis)


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """``x`` with the index along ``axis`` replaced by ``indices``, as ``numpy.take_along_axis``."""
    return apply(ops.gather_elements, x, indices, axis=axis)


def strided_slice(
    x: Tensor, axes: Sequence[int], begin: Sequence[Size], end: Sequence[Size], strides: Sequence[int] = ()
) -> Tensor:
    """``x[begin:end:stride]`` along ``axes``. Negative indices count from the end; strides are positive."""
    return apply(ops.strided_slice, x, axes, begin, end, strides)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Copy ``x`` with zeros below a diagonal of the last two axes."""
    return apply(ops.triu, x, k=diagonal)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Copy ``x`` with zeros above a diagonal of the last two axes."""
    return apply(ops.tril, x, k=diagonal)


def full(shape: Sequence[Size], fill_value: Tensor | float, dtype: str = "float32") -> Tensor:
    """A tensor filled with ``fill_value``, a number or a tensor of shape ()."""
    return apply(ops.full, shape, fill_value, dtype=dtype)


def zeros(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    """A tensor of zeros."""
    return apply(ops.zeros, shape, dtype=dtype)


def ones(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    """A tensor of ones."""
    return apply(ops.ones, shape, dtype=dtype)


def empty(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    """A tensor of unspecified elements (zeros in this implementation)."""
    return zeros(shape, dtype)


def arange(start: ExprLike, end: ExprLike | None = None, step: int = 1, dtype: str = "float32") -> Tensor:
    """The integers ``start, start + step, …`` below ``end`` in ``dtype``; ``arange(n)`` starts at 0."""
    low, high = (0, start) if end is None else (start, end)
    return apply(ops.arange, low, high, step, dtype=dtype)
