"""Indexing with index tensors, ``x[i, :, j]``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ..relax import ops
from ..relax.info import shape_of
from ..relax.nodes import Expr
from .values import Size, cast, count_of, dtype_of, promoted, rank, size_of


def nonnegative(places: Expr, size: Size) -> Expr:
    """Replace negative indices, which count from the end of an axis of ``size`` elements."""
    return ops.where(ops.less(places, 0), ops.add(places, cast(size, dtype_of(places))), places)


def index(x: Expr, places: Sequence[Expr | None]) -> Expr:
    """Gather elements at broadcast integer indices; None selects a whole axis.

    The axes of the indices replace the indexed axes: in place when these are adjacent, else in front.
    """
    axes = [axis for axis, place in enumerate(places) if place is not None]
    given = [place for place in places if place is not None]
    if axes != list(range(axes[0], axes[-1] + 1)):
        x = ops.permute_dims(x, axes=tuple(axes + [a for a in range(rank(x)) if a not in axes]))
        axes = list(range(len(axes)))
    joined = flat_index(x, axes, given)
    shape = shape_of(x)
    merged = x if len(axes) == 1 else ops.reshape(x, (*shape[: axes[0]], count_of(x, axes), *shape[axes[-1] + 1 :]))
    return ops.take(merged, joined, axis=axes[0])


def flat_index(x: Expr, axes: Sequence[int], places: Sequence[Expr]) -> Expr:
    """The indices, broadcast, of ``axes``, neighbours, as indices of one axis that replaces them."""
    if any(dtype_of(place) == "bool" for place in places):
        raise ValueError("a mask as index: the result's size is not known; select by torch.where")
    sizes = [size_of(x, axis) for axis in axes]
    wrapped = promoted(*(nonnegative(place, size) for place, size in zip(places, sizes, strict=True)))
    return reduce(
        lambda flat, part: ops.add(ops.multiply(flat, cast(part[1], dtype_of(flat))), part[0]),
        list(zip(wrapped, sizes, strict=True))[1:],
        wrapped[0],
    )
