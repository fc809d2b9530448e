"""Normalization of axes: operators accept ``-ndim`` to ``ndim - 1``, negative ones counted from the last."""

from __future__ import annotations

from collections.abc import Sequence


def normalize_axis(axis: int | None, ndim: int) -> int:
    """The axis in ``[0, ndim)``. Raises ValueError for an axis out of range, TypeError unless it is an int."""
    if not isinstance(axis, int):
        raise TypeError(f"axis: got {axis!r}; expected an integer")
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis: got {axis}; expected {-ndim} to {ndim - 1}" if ndim else "expected a tensor with axes")
    return axis % ndim


def normalize_axes(axes: int | Sequence[int | None], ndim: int) -> tuple[int, ...]:
    """The axes in ``[0, ndim)``, in the given order. Raises ValueError for an axis out of range or given twice."""
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    found = tuple(normalize_axis(axis, ndim) for axis in listed)
    if len(set(found)) < len(found):
        raise ValueError(f"axes: got {list(listed)}; expected each at most once")
    return found
