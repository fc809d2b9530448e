"""Operations that move elements, and those that make tensors from nothing."""

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
    """The same elements under another shape, given as sizes or as one sequence; one size may be -1."""
    return x.reshape(*shape)


def permute(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Another name of ``permute_dims``."""
    return permute_dims(x, axes)


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """A new axis of size 1."""
    return expand_dims(x, dim)


def squeeze(x: Tensor, axis: int | Sequence[int] | None = -1) -> Tensor:
    """Without axes of size 1; None drops all of them."""
    return apply(ops.squeeze, x, axis=axis)


def repeat(x: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Every element several times in a row along ``axis``; None: all elements in order, on one axis."""
    return x.repeat(repeats, axis)


def split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """That many equal parts, or parts that begin at the given indices."""
    return apply_tuple(ops.split, x, indices_or_sections=indices_or_sections, axis=axis)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunks`` equal parts along ``dim``."""
    return split(x, chunks, dim)


def concat(x: Sequence[Tensor], dim: int | None = None, axis: int = 0) -> Tensor:
    """The tensors one after the other along ``dim``, which is also called ``axis``."""
    return apply(ops.concat, x, axis=axis if dim is None else dim)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """``pad``: how many elements of ``value`` come before and after, for each axis in turn."""
    return apply(ops.pad, x, pad_width=pad, pad_mode=mode, pad_value=value)


def take(x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """``x`` at integer ``indices`` along ``axis``; indices outside are moved to the nearest end."""
    return apply(ops.take, x, indices, axis=axis)


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """``x`` with the index along ``axis`` replaced by ``indices``, as ``numpy.take_along_axis``."""
    return apply(ops.gather_elements, x, indices, axis=axis)


def strided_slice(
    x: Tensor, axes: Sequence[int], begin: Sequence[Size], end: Sequence[Size], strides: Sequence[int] = ()
) -> Tensor:
    """``x[begin:end:stride]`` along ``axes``. Negative ends count from the back; strides are positive."""
    return apply(ops.strided_slice, x, axes, begin, end, strides)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The last two axes with zeros below a diagonal."""
    return apply(ops.triu, x, k=diagonal)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The last two axes with zeros above a diagonal."""
    return apply(ops.tril, x, k=diagonal)


def full(shape: Sequence[Size], fill_value: Tensor | float, dtype: str = "float32") -> Tensor:
    """Every element ``fill_value``, a number or a tensor without axes."""
    return apply(ops.full, shape, fill_value, dtype=dtype)


def zeros(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    """Every element 0."""
    return apply(ops.zeros, shape, dtype=dtype)


def ones(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    """Every element 1."""
    return apply(ops.ones, shape, dtype=dtype)


def empty(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    """A tensor whose elements do not matter; they are 0."""
    return zeros(shape, dtype)


def arange(start: ExprLike, end: ExprLike | None = None, step: int = 1, dtype: str = "float32") -> Tensor:
    """``start, start + step, …`` below ``end``; ``arange(n)`` begins at 0. Integers of any type ``dtype``."""
    low, high = (0, start) if end is None else (start, end)
    return apply(ops.arange, low, high, step, dtype=dtype)
