"""Reductions over axes (None: all axes), cumulative sums, sorting and selection."""

from __future__ import annotations

from ...relax import ops
from ..tensor import Tensor, apply, apply_tuple
from .traced import traced

sum = traced(ops.sum)
mean = traced(ops.mean)
variance = traced(ops.variance)
max = traced(ops.max)
min = traced(ops.min)
prod = traced(ops.prod)
argmax = traced(ops.argmax)
argmin = traced(ops.argmin)
sort = traced(ops.sort, {"x": Tensor})
argsort = traced(ops.argsort, {"x": Tensor})


def cumsum(x: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Tensor:
    """The cumulative sum along ``axis``; None: ``x`` is flattened first. exclusive: exclude the element itself."""
    return apply(ops.cumsum, x, axis=axis, dtype=dtype, exclusive=bool(exclusive))


def topk(
    x: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> Tensor | tuple[Tensor, ...]:
    """The ``k`` largest (or smallest) elements along ``axis``, sorted, and their indices in ``dtype``.

    ret_type: ``both`` returns a tuple, ``values`` or ``indices`` one of them.
    """
    results = apply_tuple(ops.topk, x, k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype)
    return results if ret_type == "both" else results[0]
