"""Operations on traced tensors, named as in Apache TVM's ``relax.frontend.nn.op``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.expr import ExprLike
from ..relax import ops
from ..relax.builder import BlockBuilder, call_tir, call_tir_inplace
from ..relax.info import tensor_info
from ..relax.nodes import Call, TensorStructInfo, TupleStructInfo
from ..tir import te
from ..tir.nodes import PrimFunc
from .debug import debug_func as debug_func
from .debug import print_ as print_
from .tensor import Size, Tensor, emit, emit_tuple, unpack

Axes = int | Sequence[int] | None


def reshape(x: Tensor, shape: Sequence[Size]) -> Tensor:
    """The same elements under another shape; one size may be -1."""
    return emit(ops.reshape(x.expr, tuple(shape)))


def permute_dims(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Axis ``i`` of the result is axis ``axes[i]`` of ``x``."""
    return emit(ops.permute_dims(x.expr, axes=axes))


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """New axes of size 1."""
    return emit(ops.expand_dims(x.expr, axis=axis))


def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
    """Without axes of size 1."""
    return emit(ops.squeeze(x.expr, axis=axis))


def broadcast_to(x: Tensor, shape: Sequence[Size]) -> Tensor:
    return emit(ops.broadcast_to(x.expr, tuple(shape)))


def split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """That many equal parts, or parts that begin at the given indices."""
    return emit_tuple(ops.split(x.expr, indices_or_sections=indices_or_sections, axis=axis))


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    return emit(ops.concat([t.expr for t in tensors], axis=axis))


def take(x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """``x`` at integer ``indices`` along ``axis``; indices outside are moved to the nearest end."""
    return emit(ops.take(x.expr, indices.expr, axis=axis))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``: x [..., K], weight [N, K]; the result has x's type."""
    return emit(ops.linear(x.expr, weight.expr, *([] if bias is None else [bias.expr])))


def matmul(x: Tensor, y: Tensor, out_dtype: str | None = None) -> Tensor:
    return emit(ops.matmul(x.expr, y.expr, out_dtype=out_dtype or "void"))


def rms_norm(x: Tensor, weight: Tensor, axes: int | Sequence[int] = -1, epsilon: float = 1e-5) -> Tensor:
    """``x * weight / sqrt(mean(x^2) + epsilon)``"""
    return emit(ops.rms_norm(x.expr, weight.expr, axes=_listed(axes), epsilon=epsilon))


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, axes: int | Sequence[int] = -1, epsilon: float = 1e-5
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias``"""
    beta = [] if bias is None else [bias.expr]
    return emit(ops.layer_norm(x.expr, weight.expr, *beta, axes=_listed(axes), epsilon=epsilon))


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return emit(ops.softmax(x.expr, axis=axis))


def silu(x: Tensor) -> Tensor:
    """``x * sigmoid(x)``"""
    return emit(ops.silu(x.expr))


def gelu(x: Tensor, approximate: str | None = None) -> Tensor:
    """``x * Phi(x)``; ``approximate="tanh"`` is the tanh formula."""
    return emit(ops.gelu_tanh(x.expr) if approximate == "tanh" else ops.gelu(x.expr))


def relu(x: Tensor) -> Tensor:
    return emit(ops.relu(x.expr))


def sigmoid(x: Tensor) -> Tensor:
    return emit(ops.sigmoid(x.expr))


def tanh(x: Tensor) -> Tensor:
    return emit(ops.tanh(x.expr))


def exp(x: Tensor) -> Tensor:
    return emit(ops.exp(x.expr))


def sqrt(x: Tensor) -> Tensor:
    return emit(ops.sqrt(x.expr))


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return emit(ops.maximum(x.expr, y.expr))


def minimum(x: Tensor, y: Tensor) -> Tensor:
    return emit(ops.minimum(x.expr, y.expr))


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return emit(ops.where(condition.expr, x.expr, y.expr))


def astype(x: Tensor, dtype: str) -> Tensor:
    return x.astype(dtype)


def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return emit(ops.sum(x.expr, axis=axis, keepdims=keepdims))


def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return emit(ops.max(x.expr, axis=axis, keepdims=keepdims))


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    return emit(ops.mean(x.expr, axis=axis, keepdims=keepdims))


def zeros(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    return emit(ops.zeros(tuple(shape), dtype=dtype))


def ones(shape: Sequence[Size], dtype: str = "float32") -> Tensor:
    return emit(ops.ones(tuple(shape), dtype=dtype))


def full(shape: Sequence[Size], fill_value: float, dtype: str = "float32") -> Tensor:
    return emit(ops.full(tuple(shape), fill_value, dtype=dtype))


def arange(start: ExprLike, end: ExprLike, step: int = 1, dtype: str = "int32") -> Tensor:
    """``start, start + step, …`` below ``end``."""
    return emit(ops.arange(start, end, step, dtype=dtype))


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return emit(ops.triu(x.expr, k=diagonal))


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return emit(ops.tril(x.expr, k=diagonal))


def dequantize(
    q: Tensor, scale: Tensor, *, bits: int, group: int, k: int, layout: str = "NK", dtype: str = "float32"
) -> Tensor:
    """Weights from group-quantized codes: q uint32 [..., N, words], scale [..., N, groups]; gives [..., N, k]."""
    call = ops.dequantize(q.expr, scale.expr, bits=bits, group=group, k=k, layout=layout, dtype=dtype)
    return emit(call)


# -- functions of one's own ---------------------------------------------------------------------------------------


def tensor_expr_op(
    f: Callable[..., te.Tensor | Sequence[te.Tensor]], name_hint: str, args: Sequence[Tensor | ExprLike]
) -> Any:
    """``f(*args)``, a tensor expression; a Tensor, or a tuple of them when ``f`` gives several."""
    values = [a.expr if isinstance(a, Tensor) else a for a in args]
    var = BlockBuilder.current().emit_te(f, *values, name_hint=name_hint)
    results = unpack(var)
    return results[0] if isinstance(var.struct_info, TensorStructInfo) else results


def tensor_ir_op(
    func: PrimFunc,
    name_hint: str,
    args: Sequence[Tensor],
    out: tuple[Sequence[Size], str],
    scalars: Sequence[ExprLike] = (),
) -> Tensor:
    """Call a tensor function with a fresh result of shape and dtype ``out``; ``scalars`` follow the result."""
    builder = BlockBuilder.current()
    call = call_tir(builder.add_func(func, name_hint), [a.expr for a in args], tensor_info(*out), scalars)
    return emit(call, name_hint)


def tensor_ir_inplace_op(
    func: PrimFunc,
    name_hint: str,
    args: Sequence[Tensor],
    inplace_indices: Sequence[int],
    out: Sequence[tuple[Sequence[Size], str]],
    scalars: Sequence[ExprLike] = (),
) -> tuple[Tensor, ...]:
    """As ``tensor_ir_op``, several results: result ``i`` replaces argument ``inplace_indices[i]``, -1: a fresh one."""
    builder = BlockBuilder.current()
    info = TupleStructInfo(tuple(tensor_info(shape, dtype) for shape, dtype in out))
    inputs = [a.expr for a in args]
    call: Call = call_tir_inplace(builder.add_func(func, name_hint), inputs, inplace_indices, info, scalars)
    return emit_tuple(call, name_hint)


def _listed(axes: int | Sequence[int]) -> Sequence[int]:
    return (axes,) if isinstance(axes, int) else axes
