"""ONNX's operators with indices."""

from __future__ import annotations

from typing import Any

from ...relax import ops
from ...relax.nodes import Expr
from .. import blocks
from ..indexing import index, nonnegative
from ..values import axis_of, cast, constant_size, dtype_of, rank, size_of
from .arrays import Row, numbers


def _gather(x: Expr, places: Expr, *, axis: int = 0) -> Expr:
    return ops.take(x, nonnegative(places, size_of(x, axis_of(x, axis))), axis=axis)


def _gather_elements(x: Expr, places: Expr, *, axis: int = 0) -> Expr:
    return ops.gather_elements(x, nonnegative(places, size_of(x, axis_of(x, axis))), axis=axis)


def _gather_nd(x: Expr, places: Expr, *, batch_dims: int = 0) -> Expr:
    """``x[places[..., 0], places[..., 1], ...]``; the first ``batch_dims`` axes of both are common."""
    count, lead = constant_size(places, -1), rank(places) - 1
    parts = [
        blocks.reshape(ops.arange(0, size_of(x, a), 1, dtype=dtype_of(places)), (-1, *[1] * (lead - a - 1)))
        for a in range(batch_dims)
    ]
    parts += [ops.take(places, cast(n, "int64"), axis=lead, mode="fast") for n in range(count)]
    return index(x, [*parts, *[None] * (rank(x) - batch_dims - count)])


def _one_hot(places: Expr, depth: Any, values: Expr, *, axis: int = -1) -> Expr:
    """``values[1]`` where the index on the new axis is that of ``places``, else ``values[0]``."""
    count, at = int(numbers(depth)[0]), axis % (rank(places) + 1)
    found = ops.expand_dims(nonnegative(cast(places, "int64"), count), axis=at)
    steps = blocks.along_axis(ops.arange(0, count, 1, dtype="int64"), found, at)
    off, on = (ops.take(values, cast(n, "int64"), axis=0) for n in range(2))
    return ops.where(ops.equal(found, steps), on, off)


def _how(reduction: bytes) -> str:
    return "update" if reduction == b"none" else reduction.decode()


def _scatter_elements(x: Expr, places: Expr, updates: Expr, *, axis: int = 0, reduction: bytes = b"none") -> Expr:
    return ops.scatter_elements(x, places, updates, axis=axis, reduction=_how(reduction))


def _scatter_nd(x: Expr, places: Expr, updates: Expr, *, reduction: bytes = b"none") -> Expr:
    return ops.scatter_nd(x, places, updates, reduction=_how(reduction))


def _topk(x: Expr, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Expr:
    return ops.topk(x, k=numbers(k)[0], axis=axis, largest=bool(largest), dtype="int64")


INDEXING: dict[str, Row] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _topk,
}
