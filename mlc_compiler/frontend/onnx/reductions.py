"""ONNX's reductions, and its operators along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import cast, dtype_of
from .arrays import Row, numbers


def _reduction(op: Row) -> Row:
    """Row of a reduction; axes are an attribute up to opset 17, then an input."""

    def row(
        x: Expr, *given: Any, axes: Sequence[int] | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Expr:
        listed = numbers(given[0]) if given and given[0] is not None else axes
        if not listed and noop_with_empty_axes:
            return x
        return op(x, axis=tuple(listed) if listed else None, keepdims=bool(keepdims))

    return row


def _log_sum_exp(x: Expr, *, axis: Any, keepdims: bool) -> Expr:
    peak = ops.max(x, axis=axis, keepdims=True)
    total = ops.log(ops.sum(ops.exp(ops.subtract(x, peak)), axis=axis, keepdims=keepdims))
    return ops.add(total, ops.reshape(peak, shape_of(total)))


def _arg(op: Row) -> Row:
    def row(x: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Expr:
        if select_last_index:
            raise ValueError("select_last_index: got 1; expected 0")
        return op(x, axis=axis, keepdims=bool(keepdims))

    return row


def _cumsum(x: Expr, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Expr:
    (at,) = numbers(axis)
    total = ops.cumsum(ops.flip(x, axis=at) if reverse else x, axis=at, exclusive=bool(exclusive))
    return ops.flip(total, axis=at) if reverse else total


def _hardmax(x: Expr, *, axis: int = -1) -> Expr:
    """1 at the first maximum along ``axis``, else 0."""
    best = ops.argmax(x, axis=axis, keepdims=True)
    return cast(ops.equal(best, blocks.places_along(x, axis)), dtype_of(x))


REDUCTIONS: dict[str, Row] = {
    "ArgMax": _arg(ops.argmax),
    "ArgMin": _arg(ops.argmin),
    "CumSum": _cumsum,
    "Hardmax": _hardmax,
    "LogSoftmax": lambda x, *, axis=-1: ops.log_softmax(x, axis=axis),
    "ReduceL1": _reduction(lambda x, **how: ops.sum(ops.abs(x), **how)),
    "ReduceL2": _reduction(lambda x, **how: ops.sqrt(ops.sum(ops.square(x), **how))),
    "ReduceLogSum": _reduction(lambda x, **how: ops.log(ops.sum(x, **how))),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(ops.max),
    "ReduceMean": _reduction(ops.mean),
    "ReduceMin": _reduction(ops.min),
    "ReduceProd": _reduction(ops.prod),
    "ReduceSum": _reduction(ops.sum),
    "ReduceSumSquare": _reduction(lambda x, **how: ops.sum(ops.square(x), **how)),
    "Softmax": lambda x, *, axis=-1: ops.softmax(x, axis=axis),
}
