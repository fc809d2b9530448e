"""Mixture of experts (Shazeer et al. 2017): grouping by expert, grouped matmul, weighted sum; see ``routing.py``.

The order is computed by counting, with an independent reduction for each element, so that it runs in parallel.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import dtype as dt
from ...ir.expr import (
    INDEX_DTYPE,
    IntImm,
    PrimExpr,
    Var,
    binary,
    const,
    logical_and,
    logical_or,
    maximum,
    minimum,
    product,
)
from ...ir.simplify import simplify
from ...tir import te
from ...tir.calling import flat_index
from ..info import show_shape, static_size
from .linear import narrowed, sum_type
from .registry import operator


@operator("nn.expert_linear")
def expert_linear(x: te.Tensor, weight: te.Tensor, experts: te.Tensor, rows: te.Tensor | None = None) -> te.Tensor:
    """``x[rows[r]] @ weight[experts[r]].T`` for each r.

    x: [T, K]; weight: [E, N, K] of any floating type, converted elementwise. experts, rows: integers [R], clipped to
    the valid range; without ``rows``, T is R and row r of x is used. Returns [R, N] in x's dtype; sums are at least
    float32. Back ends read an expert's matrix once for adjacent rows of the same expert.
    """
    shapes = f"{show_shape(x.shape)} and {show_shape(weight.shape)}"
    if x.ndim != 2 or weight.ndim != 3:
        raise ValueError(f"got shapes {shapes}; expected [T, K] and [E, N, K]")
    te.require_equal(x.shape[1], weight.shape[2], f"inner sizes of {shapes}")
    for name, index in (("experts", experts), ("rows", rows)):
        if index is not None and (index.ndim != 1 or not dt.is_int(index.dtype)):
            raise ValueError(f"{name}: got {index.dtype}{show_shape(index.shape)}; expected integers [R]")
    te.require_equal(experts.shape[0], (x if rows is None else rows).shape[0], "numbers of experts and of rows")
    k, acc = te.reduce_axis(x.shape[1], "k"), sum_type(x.dtype)

    def dot(r: Var, n: Var) -> PrimExpr:
        row = r if rows is None else _inside(rows[r], x.shape[0])
        expert = _inside(experts[r], weight.shape[0])
        return te.sum(te.cast(x[row, k], acc) * te.cast(weight[expert, n, k], acc), axis=k)

    total = te.compute((experts.shape[0], weight.shape[1]), dot, name="matmul")
    return narrowed(total, x.dtype)


@operator("nn.expert_sum")
def expert_sum(y: te.Tensor, weights: te.Tensor, places: te.Tensor | None = None) -> te.Tensor:
    """``sum over j of weights[t, j] * y[places[t, j]]``: the weighted sum of the results of a token's experts.

    y: [R, D]; weights: floating [..., C] for tokens t of any shape, C a constant; places: integers [..., C], clipped to
    the valid range; without them, choice i (row-major) has row i of y. Returns [..., D] in y's dtype;
    computed in float32.
    """
    choices = static_size(weights.shape[-1]) if weights.ndim > 1 else None
    if y.ndim != 2 or choices is None:
        raise ValueError(
            f"got shapes {show_shape(y.shape)} and {show_shape(weights.shape)}; expected [R, D] and [..., a constant]"
        )
    if places is None:
        te.require_equal(y.shape[0], product(weights.shape), "numbers of results and of choices")

    def element(*i: PrimExpr) -> PrimExpr:
        total: PrimExpr = te.f32(0)
        for j in range(choices):
            choice = (*i[:-1], const(j, INDEX_DTYPE))
            row = flat_index(weights.buffer, choice) if places is None else _inside(places[choice], y.shape[0])
            total = total + te.f32(weights[choice]) * te.f32(y[row, i[-1]])
        return te.cast(total, y.dtype)

    return te.compute((*weights.shape[:-1], y.shape[1]), element, name="expert_sum")


@operator("nn.group_by_expert")
def group_by_expert(experts: te.Tensor, *, num_experts: int) -> list[te.Tensor]:
    """Sort the choices of all tokens by expert; the choices of one expert stay in the order of the tokens.

    experts: integers [T, C], clipped to the valid range. Returns the position of each choice in that order, int32 [T,
    C], and for each position the expert and the token, int32 [T * C]: operands of ``expert_sum`` and
    ``expert_linear``.
    """
    if experts.ndim != 2 or not dt.is_int(experts.dtype) or num_experts < 1:
        raise ValueError(
            f"got num_experts {num_experts} and {experts.dtype}{show_shape(experts.shape)}; expected integers [T, C]"
        )
    choices = experts.shape[1]

    def expert(t: PrimExpr, j: PrimExpr) -> PrimExpr:
        return _inside(experts[t, j], IntImm(num_experts))

    def axes() -> tuple[te.ReduceAxis, te.ReduceAxis]:
        return te.reduce_axis(experts.shape[0], "token"), te.reduce_axis(choices, "choice")

    def place(t: Var, j: Var) -> PrimExpr:
        token, choice = axes()
        is_first = binary("<", token * choices + choice, t * choices + j)
        is_before = precedes(expert(t, j), expert(token, choice), is_first)
        return te.sum(te.select(is_before, const(1, "int32"), const(0, "int32")), axis=[token, choice])

    places = te.compute(experts.shape, place, name="place")

    def at_place(p: Var, value: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> PrimExpr:
        token, choice = axes()
        is_it = binary("==", te.cast(places[token, choice], INDEX_DTYPE), p)
        return te.sum(te.select(is_it, te.cast(value(token, choice), "int32"), const(0, "int32")), axis=[token, choice])

    count = (simplify(experts.shape[0] * choices),)
    ids = te.compute(count, lambda p: at_place(p, expert), name="expert_of")
    return [places, ids, te.compute(count, lambda p: at_place(p, lambda token, _: token), name="token_of")]


def _inside(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    return maximum(minimum(te.cast(index, INDEX_DTYPE), size - 1), 0)


def precedes(a: PrimExpr, b: PrimExpr, is_first: PrimExpr) -> PrimExpr:
    """Whether element a comes before b in descending order; for equal elements, ``is_first``."""
    return logical_or(binary(">", a, b), logical_and(binary("==", a, b), is_first))
