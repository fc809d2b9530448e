"""Mixtures of experts (Shazeer et al. 2017): order of rows by expert, products, weighted sums; see also ``routing.py``.

Orders are computed by counting, with one reduction for each element: unlike sorts, these have no sequence of steps, and
equal elements keep their order.
"""

from __future__ import annotations

from ...ir import dtype as dt
from ...ir.expr import INDEX_DTYPE, PrimExpr, Var, binary, const, logical_and, logical_or, maximum, minimum
from ...tir import te
from ..info import show_shape, static_size
from .linear import narrowed, sum_type
from .registry import operator


@operator("nn.expert_linear")
def expert_linear(x: te.Tensor, weight: te.Tensor, experts: te.Tensor, rows: te.Tensor | None = None) -> te.Tensor:
    """``x[rows[r]] @ weight[experts[r]].T`` for each r.

    x: [T, K]; weight: [E, N, K] of any floating type, converted elementwise. experts, rows: integers [R], clipped to
    the valid range; without ``rows``, T is R and row r of x is taken. Returns [R, N] in x's dtype; sums are at least
    float32. Back ends read the matrix of an expert once for neighbouring rows of the same expert.
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
    """``sum over j of weights[t, j] * y[places[t, j]]``: the results of a token's experts, in the order of its choices.

    y: [R, D]; weights: [T, C], floating; places: integers [T, C], clipped to the valid range, ``t * C + j`` if None.
    C is a constant. Returns [T, D] in y's dtype; computed in float32.
    """
    choices = static_size(weights.shape[1]) if weights.ndim == 2 else None
    if y.ndim != 2 or choices is None:
        raise ValueError(
            f"got shapes {show_shape(y.shape)} and {show_shape(weights.shape)}; expected [R, D] and [T, a constant]"
        )

    def element(t: Var, d: Var) -> PrimExpr:
        total: PrimExpr = te.f32(0)
        for j in range(choices):
            place = t * choices + j if places is None else _inside(places[t, j], y.shape[0])
            total = total + te.f32(weights[t, j]) * te.f32(y[place, d])
        return te.cast(total, y.dtype)

    return te.compute((weights.shape[0], y.shape[1]), element, name="expert_sum")


@operator("nn.sorted_places")
def sorted_places(keys: te.Tensor) -> te.Tensor:
    """The place of each element in ascending order, int32 [R], as ``argsort(argsort(keys))`` with stable sorts.

    keys: integers [R]. The number of comparisons is the square of R.
    """
    (count,) = keys.shape
    other = te.reduce_axis(count, "other")

    def place(r: Var) -> PrimExpr:
        is_before = precedes(keys[r], keys[other], binary("<", other, r))
        return te.sum(te.select(is_before, const(1, "int32"), const(0, "int32")), axis=other)

    return te.compute((count,), place, name="sorted_places")


@operator("nn.inverse_permutation")
def inverse_permutation(places: te.Tensor) -> te.Tensor:
    """``result[places[r]] = r``: int32 [R] for a permutation, integers [R]; 0 where no place is given."""
    (count,) = places.shape
    other = te.reduce_axis(count, "other")

    def index(p: Var) -> PrimExpr:
        is_it = binary("==", te.cast(places[other], INDEX_DTYPE), p)
        return te.sum(te.select(is_it, te.cast(other, "int32"), const(0, "int32")), axis=other)

    return te.compute((count,), index, name="inverse_permutation")


def _inside(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    return maximum(minimum(te.cast(index, INDEX_DTYPE), size - 1), 0)


def precedes(a: PrimExpr, b: PrimExpr, is_first: PrimExpr) -> PrimExpr:
    """Whether element a is before b in descending order; of equal elements, whether a is the first."""
    return logical_or(binary(">", a, b), logical_and(binary("==", a, b), is_first))
