"""Calls of user-defined functions: tensor expressions, tensor functions, functions registered by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import ExprLike
from ...relax.builder import BlockBuilder, call_dps_packed, call_tir, call_tir_inplace
from ...relax.info import tensor_info
from ...relax.nodes import StructInfo, TensorStructInfo, TupleStructInfo
from ...tir import te
from ...tir.nodes import PrimFunc
from ..tensor import Size, Tensor, emit, emit_tuple, graph_value, unpack

Out = Tensor | tuple[Sequence[Size], str]
"""The shape and dtype of a result, or a tensor that has them (see ``Tensor.placeholder``)."""


def tensor_expr_op(
    f: Callable[..., te.Tensor | Sequence[te.Tensor]], name_hint: str, args: Sequence[Tensor | ExprLike]
) -> Any:
    """Call ``f(*args)``, a tensor expression; returns a Tensor, or a tuple of them when ``f`` returns several."""
    values = [a.expr if isinstance(a, Tensor) else a for a in args]
    var = BlockBuilder.current().emit_te(f, *values, name_hint=name_hint)
    results = unpack(var)
    return results[0] if isinstance(var.struct_info, TensorStructInfo) else results


def tensor_ir_op(
    func: PrimFunc, name_hint: str, args: Sequence[Tensor], out: Out, scalars: Sequence[ExprLike] = ()
) -> Tensor:
    """Call ``func(*args, result, *scalars)``, a tensor function; ``out``: shape and dtype of the result."""
    builder = BlockBuilder.current()
    call = call_tir(builder.add_func(func, name_hint), [a.expr for a in args], _info(out), scalars)
    return emit(call, name_hint)


def tensor_ir_inplace_op(
    func: PrimFunc,
    name_hint: str,
    args: Sequence[Tensor],
    inplace_indices: Sequence[int],
    out: Sequence[Out],
    scalars: Sequence[ExprLike] = (),
) -> tuple[Tensor, ...]:
    """Like ``tensor_ir_op`` for several results: result i overwrites argument ``inplace_indices[i]``, unless -1."""
    builder = BlockBuilder.current()
    info = TupleStructInfo(tuple(map(_info, out)))
    inputs = [a.expr for a in args]
    return emit_tuple(
        call_tir_inplace(builder.add_func(func, name_hint), inputs, inplace_indices, info, scalars), name_hint
    )


def extern(name: str, args: Sequence[Tensor | ExprLike | str], out: Out | list[Out]) -> Any:
    """Call the function registered as ``name`` (see ``register_func``) with ``args`` and the results to write.

    args: tensors, sizes and strings. out: one result, returned as a Tensor, or a list of results, returned as a tuple.
    """
    several = isinstance(out, list)
    info: StructInfo = TupleStructInfo(tuple(map(_info, out))) if isinstance(out, list) else _info(out)
    results = emit_tuple(call_dps_packed(name, [graph_value(f"op.extern: {name}", a) for a in args], info), "extern")
    return results if several else results[0]


def _info(out: Out) -> TensorStructInfo:
    return tensor_info(out.shape, out.dtype) if isinstance(out, Tensor) else tensor_info(*out)
