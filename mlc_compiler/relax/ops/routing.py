"""Selection of experts from a router's logits."""

from __future__ import annotations

import math

from ...ir.expr import INDEX_DTYPE, PrimExpr, Var, binary, const, logical_and, maximum
from ...tir import te
from ..info import show_shape, static_size
from .elementwise import sigmoid
from .experts import precedes
from .normalize import softmax
from .registry import operator

SPARSEMIXER = "sparsemixer"
SCORES = ("softmax", "sigmoid", SPARSEMIXER)
TINIEST = 1e-20  # added to a sum of weights before dividing by it, as in DeepSeek-V3


@operator("nn.route")
def route(
    logits: te.Tensor,
    correction: te.Tensor | None = None,
    *,
    k: int,
    score: str = "softmax",
    renormalize: bool = False,
    scale: float = 1.0,
    groups: int = 1,
    kept_groups: int = 1,
    group_best: int = 1,
    margin: float = 0.0,
) -> list[te.Tensor]:
    """Select the ``k`` best experts of each token, best first: weights float32 [T, k], experts int32 [T, k].

    logits: floating [T, E] of constant E, a few hundred at most; scores are their ``softmax`` or ``sigmoid``, in
    float32. correction: floating [E], added to scores for the selection, not to weights. Of equal scores, the first
    expert is selected first. renormalize: whether to divide the weights of a token by their sum; with ``softmax`` that
    is the softmax over the selected logits. scale: a factor of the weights.

    groups: the number of groups of experts; experts outside of the ``kept_groups`` best groups of a token are
    not selected. A group's score is the sum of its ``group_best`` best scores (DeepSeek-AI 2024, "DeepSeek-V2", section
    2.1.2, and "DeepSeek-V3", section 2.1.2).

    With ``sparsemixer`` (Liu et al. 2024, "GRIN"), scores are the logits. The weight of a selected expert is its
    softmax among the experts not selected before it whose logit s is close to its own, b:
    ``b - s <= margin * max(|s|, b)``.
    """
    size = static_size(logits.shape[-1]) if logits.ndim == 2 else None
    if size is None or not 1 <= k <= size:
        raise ValueError(f"got k {k} and logits {show_shape(logits.shape)}; expected 1 <= k <= E and [T, E] of known E")
    if score not in SCORES:
        raise ValueError(f"score: got {score!r}; expected one of {', '.join(SCORES)}")
    if score == SPARSEMIXER and (correction is not None or renormalize or groups > 1):
        raise ValueError(f"score {SPARSEMIXER}: expected no correction, renormalization or groups")
    if not 1 <= kept_groups <= groups or size % groups or not 1 <= group_best <= size // groups:
        raise ValueError(
            f"got groups {groups}, kept_groups {kept_groups}, group_best {group_best}; expected groups that divide "
            f"{size} experts, at least as many as are kept, and group_best up to the size of one"
        )
    wide = te.elementwise("cast", te.f32, logits)
    scores = _scores(wide, score)
    chosen_by = scores if correction is None else _corrected(scores, correction)
    if kept_groups < groups:
        chosen_by = _within_groups(chosen_by, size // groups, kept_groups, group_best)
    ranks = _ranks(chosen_by, size, "rank")
    experts = _best(ranks, k)
    if score == SPARSEMIXER:
        return [_mixer_weights(scores, ranks, experts, margin, scale), experts]
    return [_weights(scores, experts, renormalize, scale), experts]


def _scores(logits: te.Tensor, score: str) -> te.Tensor:
    if score == SPARSEMIXER:
        return logits
    scores = softmax.te(logits, axis=1) if score == "softmax" else sigmoid.te(logits)
    assert isinstance(scores, te.Tensor)
    return scores


def _corrected(scores: te.Tensor, correction: te.Tensor) -> te.Tensor:
    te.require_equal(correction.shape[0], scores.shape[1], "numbers of corrections and of experts")
    return te.compute(scores.shape, lambda t, e: scores[t, e] + te.f32(correction[e]), name="corrected")


def _ranks(scores: te.Tensor, size: int, name: str) -> te.Tensor:
    """The rank of each element within its group of ``size`` elements of a row, int32, from 0 for the best."""
    other = te.reduce_axis(size, "other")

    def rank(t: Var, e: Var) -> PrimExpr:
        is_before = precedes(scores[t, e // size * size + other], scores[t, e], binary("<", other, e % size))
        return te.sum(te.select(is_before, const(1, "int32"), const(0, "int32")), axis=other)

    return te.compute(scores.shape, rank, name=name)


def _within_groups(scores: te.Tensor, size: int, kept: int, best: int) -> te.Tensor:
    """The scores, with minus infinity outside of the best groups."""
    count = scores.shape[1] // size
    ranks, member = _ranks(scores, size, "rank_in_group"), te.reduce_axis(size, "member")

    def total(t: Var, g: Var) -> PrimExpr:
        place = g * size + member
        return te.sum(te.select(ranks[t, place] < best, scores[t, place], te.f32(0)), axis=member)

    of_groups = te.compute((scores.shape[0], count), total, name="group_score")
    group_ranks = _ranks(of_groups, static_size(count) or 1, "group_rank")

    def element(t: Var, e: Var) -> PrimExpr:
        return te.select(group_ranks[t, e // size] < kept, scores[t, e], te.f32(-math.inf))

    return te.compute(scores.shape, element, name="within_groups")


def _best(ranks: te.Tensor, k: int) -> te.Tensor:
    expert = te.reduce_axis(ranks.shape[1], "expert")

    def index(t: Var, j: Var) -> PrimExpr:
        is_it = binary("==", ranks[t, expert], te.cast(j, "int32"))
        return te.sum(te.select(is_it, te.cast(expert, "int32"), const(0, "int32")), axis=expert)

    return te.compute((ranks.shape[0], k), index, name="experts")


def _weights(scores: te.Tensor, experts: te.Tensor, renormalize: bool, scale: float) -> te.Tensor:
    def weight(t: PrimExpr, j: PrimExpr) -> PrimExpr:
        return scores[t, te.cast(experts[t, j], INDEX_DTYPE)]

    if not renormalize:
        return te.compute(experts.shape, lambda t, j: weight(t, j) * scale, name="weights")
    j = te.reduce_axis(experts.shape[1], "j")
    total = te.compute(experts.shape[:1], lambda t: te.sum(weight(t, j), axis=j), name="total")
    return te.compute(experts.shape, lambda t, j: weight(t, j) / (total[t] + TINIEST) * scale, name="weights")


def _mixer_weights(logits: te.Tensor, ranks: te.Tensor, experts: te.Tensor, margin: float, scale: float) -> te.Tensor:
    expert = te.reduce_axis(logits.shape[1], "expert")

    def total(t: Var, j: Var) -> PrimExpr:
        best, other = logits[t, te.cast(experts[t, j], INDEX_DTYPE)], logits[t, expert]
        is_near = best - other <= maximum(maximum(other, -other), best) * margin
        counts = logical_and(ranks[t, expert] >= te.cast(j, "int32"), is_near)
        return te.sum(te.select(counts, te.exp(other - best), te.f32(0)), axis=expert)

    totals = te.compute(experts.shape, total, name="total")
    return te.compute(experts.shape, lambda t, j: te.f32(scale) / totals[t, j], name="weights")
