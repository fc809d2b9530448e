"""Sums and other reductions over axes (None: all of them), running sums, search and order."""

from __future__ import annotations

from collections.abc import Sequence

from ...relax import ops
from ..tensor import Tensor, apply, apply_tuple

Axes = int | Sequence[int] | None


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return apply(ops.sum, x, axis=axis, keepdims=keepdims)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return apply(ops.mean, x, axis=axis, keepdims=keepdims)


def variance(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean squared distance from the mean."""
    return apply(ops.variance, x, axis=axis, keepdims=keepdims)


def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return apply(ops.max, x, axis=axis, keepdims=keepdims)


def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return apply(ops.min, x, axis=axis, keepdims=keepdims)


def prod(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return apply(ops.prod, x, axis=axis, keepdims=keepdims)


def argmax(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Where along ``axis`` the first greatest element is: int64."""
    return apply(ops.argmax, x, axis=axis, keepdims=keepdims)


def argmin(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Where along ``axis`` the first least element is: int64."""
    return apply(ops.argmin, x, axis=axis, keepdims=keepdims)


def cumsum(x: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """Running sums along ``axis``; None: of all elements in order, on one axis."""
    return apply(ops.cumsum, x, axis=axis, dtype=dtype, exclusive=bool(exclusive))


def topk(
    x: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> Tensor | tuple[Tensor, ...]:
    """The ``k`` greatest (or least) elements along ``axis``, the best first, and where they are.

    ret_type: ``both`` gives a tuple, ``values`` or ``indices`` one of them.
    """
    results = apply_tuple(ops.topk, x, k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype)
    return results if ret_type == "both" else results[0]


def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The elements in order along ``axis``."""
    return apply(ops.sort, x, axis=axis, descending=descending)


def argsort(x: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32") -> Tensor:
    """Where along ``axis`` the elements are in order; equal ones keep theirs."""
    return apply(ops.argsort, x, axis=axis, descending=descending, dtype=dtype)
