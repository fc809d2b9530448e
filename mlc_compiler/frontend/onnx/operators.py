"""The table of ONNX's operators (opset 13 to 20) on tensors: https://onnx.ai/onnx/operators.

Rows take inputs in order, None for an omitted one, and attributes by name. Inputs that must be known at
import, such as shapes and axes, are numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ...ir import dtype as dt
from ...relax import ops
from ...relax.info import shape_of
from ...relax.nodes import Expr
from .. import blocks
from ..values import Size, axis_of, cast, constant_size, dtype_of, plain, promoted, rank, size_of
from .arrays import Row, numbers
from .windows import WINDOWS


def _dtype(kind: int) -> str:
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)))


def _variadic(op: Row) -> Row:
    def row(first: Expr, *others: Expr) -> Expr:
        for other in others:
            first = op(first, other)
        return first

    return row


def _gemm(
    a: Expr, b: Expr, c: Expr | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Expr:
    a = ops.permute_dims(a) if transA else a
    product = ops.linear(a, b) if transB else ops.matmul(a, b)
    product = product if alpha == 1.0 else ops.multiply(product, alpha)
    if c is None:
        return product
    return ops.add(product, c if beta == 1.0 else ops.multiply(c, beta))


def _clip(x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


def _layer_norm(
    x: Expr, scale: Expr, bias: Expr | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    return blocks.layer_norm(x, rank(x) - axis_of(x, axis), scale, bias, epsilon)


def _batch_norm(
    x: Expr,
    scale: Expr,
    bias: Expr,
    mean: Expr,
    variance: Expr,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Expr:
    if training_mode:
        raise ValueError("training_mode: got 1; expected 0")
    return blocks.batch_norm(x, mean, variance, scale, bias, epsilon)


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
    if parts is None and num_outputs is None:
        raise ValueError("split: got neither sizes nor num_outputs")
    places = num_outputs if parts is None else tuple(int(e) for e in np.cumsum(numbers(parts))[:-1])
    return ops.split(x, indices_or_sections=places, axis=axis)


def _slice(x: Expr, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Expr:
    first, last = numbers(starts), numbers(ends)
    places = range(len(first)) if axes is None else numbers(axes)
    for i, axis in enumerate(places):
        step = 1 if steps is None else numbers(steps)[i]
        size = size_of(x, axis_of(x, axis))
        end = size if isinstance(last[i], int) and last[i] >= 2**31 - 1 else last[i]
        x = ops.strided_slice(x, (axis,), (first[i],), (end,), (step,))
    return x


def _gather(x: Expr, places: Expr, *, axis: int = 0) -> Expr:
    size = cast(size_of(x, axis_of(x, axis)), dtype_of(places))
    return ops.take(x, ops.where(ops.less(places, 0), ops.add(places, size), places), axis=axis)


def _cumsum(x: Expr, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Expr:
    (at,) = numbers(axis)
    total = ops.cumsum(ops.flip(x, axis=at) if reverse else x, axis=at, exclusive=bool(exclusive))
    return ops.flip(total, axis=at) if reverse else total


def _lp_normalized(x: Expr, *, axis: int = -1, p: int = 2) -> Expr:
    size = ops.sum(ops.abs(x) if p == 1 else ops.square(x), axis=axis, keepdims=True)
    return ops.divide(x, size if p == 1 else ops.sqrt(size))


def _instance_norm(x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5) -> Expr:
    groups, axes = constant_size(x, 1), tuple(range(2, rank(x)))
    return ops.group_norm(x, scale, bias, num_groups=groups, channel_axis=1, axes=axes, epsilon=epsilon)


def _how(reduction: bytes) -> str:
    return "update" if reduction == b"none" else reduction.decode()


def _scatter_elements(x: Expr, places: Expr, updates: Expr, *, axis: int = 0, reduction: bytes = b"none") -> Expr:
    return ops.scatter_elements(x, places, updates, axis=axis, reduction=_how(reduction))


def _scatter_nd(x: Expr, places: Expr, updates: Expr, *, reduction: bytes = b"none") -> Expr:
    return ops.scatter_nd(x, places, updates, reduction=_how(reduction))


def _expand(x: Expr, shape: Any) -> Expr:
    """Row of Expand; target sizes of 1 keep the sizes of ``x``."""
    sizes: list[Any] = numbers(shape)
    own: list[Any] = [plain(s) for s in shape_of(x)]
    sizes, own = [1] * (len(own) - len(sizes)) + sizes, [1] * (len(sizes) - len(own)) + own
    return ops.broadcast_to(
        x, tuple(o if isinstance(s, int) and s == 1 else s for s, o in zip(sizes, own, strict=True))
    )


def _pad(x: Expr, widths: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Expr:
    if axes is not None:
        raise ValueError("axes: got some; expected widths for all axes")
    given, count = numbers(widths), rank(x)
    pairs = tuple(w for both in zip(given[:count], given[count:], strict=True) for w in both)
    return ops.pad(x, pad_width=pairs, pad_mode=mode, pad_value=0.0 if value is None else float(numbers(value)[0]))


def _arg(op: Row) -> Row:
    def row(x: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Expr:
        if select_last_index:
            raise ValueError("select_last_index: got 1; expected 0")
        return op(x, axis=axis, keepdims=bool(keepdims))

    return row


def _topk(x: Expr, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Expr:
    return ops.topk(x, k=numbers(k)[0], axis=axis, largest=bool(largest), dtype="int64")


def _hard_sigmoid(x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return ops.clip(ops.add(ops.multiply(x, alpha), beta), min=0.0, max=1.0)


def _elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    low = ops.multiply(ops.subtract(ops.exp(ops.minimum(x, 0.0)), 1.0), alpha)
    return ops.where(ops.greater(x, 0.0), x, low)


ROWS: dict[str, Row] = {
    **WINDOWS,
    "Abs": ops.abs,
    "Acos": ops.acos,
    "Acosh": ops.acosh,
    "Add": ops.add,
    "And": ops.logical_and,
    "ArgMax": _arg(ops.argmax),
    "ArgMin": _arg(ops.argmin),
    "Asin": ops.asin,
    "Asinh": ops.asinh,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "BatchNormalization": _batch_norm,
    "Cast": lambda x, *, to, saturate=1: cast(x, _dtype(to)),
    "Ceil": ops.ceil,
    "Clip": _clip,
    "Concat": lambda *parts, axis: ops.concat(parts, axis=axis),
    "Cos": ops.cos,
    "Cosh": ops.cosh,
    "CumSum": _cumsum,
    "Div": lambda a, b: (ops.divide if dt.is_float(dtype_of(a)) else blocks.truncated_quotient)(a, b),
    "Elu": _elu,
    "Equal": ops.equal,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": ops.floor,
    "Gather": _gather,
    "GatherElements": lambda x, places, *, axis=0: ops.gather_elements(x, places, axis=axis),
    "Gelu": lambda x, *, approximate=b"none": (ops.gelu_tanh if approximate == b"tanh" else ops.gelu)(x),
    "Gemm": _gemm,
    "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x: ops.multiply(x, _hard_sigmoid(x, alpha=1 / 6)),
    "Identity": lambda x: x,
    "InstanceNormalization": _instance_norm,
    "IsNaN": lambda x: ops.not_equal(x, x),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda x, *, alpha=0.01: ops.leakyrelu(x, alpha=alpha),
    "Less": ops.less,
    "LessOrEqual": ops.less_equal,
    "Log": ops.log,
    "LogSoftmax": lambda x, *, axis=-1: ops.log_softmax(x, axis=axis),
    "LpNormalization": _lp_normalized,
    "MatMul": ops.matmul,
    "Max": _variadic(ops.maximum),
    "Min": _variadic(ops.minimum),
    "Mish": lambda x: ops.multiply(x, ops.tanh(ops.softplus(x))),
    "Mul": ops.multiply,
    "Neg": ops.negative,
    "Not": ops.logical_not,
    "Or": ops.logical_or,
    "PRelu": lambda x, slope: ops.where(ops.less(x, 0.0), ops.multiply(x, slope), x),
    "Pad": _pad,
    "Pow": lambda x, y: ops.power(x, cast(y, dtype_of(x))),
    "Reciprocal": lambda x: ops.divide(cast(1.0, dtype_of(x)), x),
    "ReduceL1": _reduction(lambda x, **how: ops.sum(ops.abs(x), **how)),
    "ReduceL2": _reduction(lambda x, **how: ops.sqrt(ops.sum(ops.square(x), **how))),
    "ReduceLogSum": _reduction(lambda x, **how: ops.log(ops.sum(x, **how))),
    "ReduceMax": _reduction(ops.max),
    "ReduceMean": _reduction(ops.mean),
    "ReduceMin": _reduction(ops.min),
    "ReduceProd": _reduction(ops.prod),
    "ReduceSum": _reduction(ops.sum),
    "ReduceSumSquare": _reduction(lambda x, **how: ops.sum(ops.square(x), **how)),
    "Relu": ops.relu,
    "Reshape": _reshape,
    "Round": ops.round,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Sigmoid": ops.sigmoid,
    "Sign": ops.sign,
    "Sin": ops.sin,
    "Sinh": ops.sinh,
    "Slice": _slice,
    "Softmax": lambda x, *, axis=-1: ops.softmax(x, axis=axis),
    "Softplus": ops.softplus,
    "Split": _split,
    "Sqrt": ops.sqrt,
    "Squeeze": _squeeze,
    "Sub": ops.subtract,
    "Sum": _variadic(ops.add),
    "Tan": ops.tan,
    "Tanh": ops.tanh,
    "Tile": lambda x, times: ops.tile(x, repeats=tuple(numbers(times))),
    "TopK": _topk,
    "Transpose": lambda x, *, perm=None: ops.permute_dims(x, axes=None if perm is None else tuple(perm)),
    "Trilu": lambda x, k=None, *, upper=1: (ops.triu if upper else ops.tril)(x, k=0 if k is None else numbers(k)[0]),
    "Unsqueeze": lambda x, axes: ops.expand_dims(x, axis=tuple(numbers(axes))),
    "Where": lambda c, x, y: ops.where(c, *promoted(x, y)),
    "Xor": ops.logical_xor,
}
KNOWN_INPUTS = {
    "CumSum": (1,),
    "Resize": (1, 2, 3),
    "Expand": (1,),
    "Pad": (1, 2, 3),
    **{name: (1,) for name in ROWS if name.startswith("Reduce")},
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}
"""Positions of the inputs that must be known at import."""
