"""TVMScript macros of expert routing; ``k`` is ``routing._Route``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....ir.expr import maximum
from ....script import T
from ..machine import WARP
from .warps import add, instruction, reduce_lanes


@T.macro
def choose_experts(k, token, lane):
    for i in T.unroll(k.held):
        k.scores[i] = k.logit(token, lane, i)
    if k.is_softmax:
        softmax(k)
    else:
        for i in T.unroll(k.held):
            k.scores[i] = T.sigmoid(k.scores[i])
    for i in T.unroll(k.held):
        k.left[i] = k.chosen_by(lane, i)
    k.total[0] = T.float32(0)
    k.own_weight[0] = T.float32(0)
    k.own_expert[0] = T.int32(0)
    for j in range(k.k):
        choose_next(k, lane)
        k.total[0] = k.total[0] + k.weight[0]
        k.own_weight[0] = T.Select(lane == j, k.weight[0], k.own_weight[0])
        k.own_expert[0] = T.Select(lane == j, k.chosen[0], k.own_expert[0])
    if lane < k.k:
        k.weights[token, lane] = k.result()
        k.experts[token, lane] = k.own_expert[0]


@T.macro
def softmax(k):
    k.best[0] = k.lowest
    for i in T.unroll(k.held):
        k.best[0] = T.max(k.best[0], k.scores[i])
    reduce_lanes(k.best, 1, k.other, maximum, 1, WARP)
    k.total[0] = T.float32(0)
    for i in T.unroll(k.held):
        k.scores[i] = T.exp(k.scores[i] - k.best[0])
        k.total[0] = k.total[0] + k.scores[i]
    reduce_lanes(k.total, 1, k.other, add, 1, WARP)
    for i in T.unroll(k.held):
        k.scores[i] = k.scores[i] / k.total[0]


@T.macro
def choose_next(k, lane):
    """Choose the best remaining expert, the first of equal ones; all lanes get its index and score."""
    k.best[0] = k.lowest
    for i in T.unroll(k.held):
        k.best[0] = T.Select(k.left[i] > k.best[0], k.left[i], k.best[0])
    reduce_lanes(k.best, 1, k.other, maximum, 1, WARP)
    k.place[0] = k.last
    for i in T.unroll(k.held):
        is_best = k.left[i] == k.best[0]
        k.place[0] = T.Select(is_best, T.min(k.place[0], k.expert(lane, i)), k.place[0])
    instruction("redux.min.s32", k.chosen[0], k.place[0])
    k.weight[0] = T.float32(0)
    for i in T.unroll(k.held):
        is_chosen = k.expert(lane, i) == k.chosen[0]
        k.weight[0] = T.Select(is_chosen, k.scores[i], k.weight[0])
        k.left[i] = T.Select(is_chosen, k.nothing, k.left[i])
    reduce_lanes(k.weight, 1, k.other, add, 1, WARP)
