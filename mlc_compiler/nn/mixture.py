"""Mixtures of experts: how a router's logits choose experts, and the layer that they make.

class MoE(nn.Module):
    def __init__(self):
        self.gate = nn.Linear(D, E, bias=False)
        self.up, self.down = nn.Experts(E, D, 2 * I), nn.Experts(E, I, D)

    def forward(self, x):
        return nn.mixture(x, nn.Routing(2, renormalize=True)(self.gate(x)), self.up, self.down)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mlc_errors import MLCError

from ..relax import ops
from . import op
from .layers import Experts
from .tensor import Size, Tensor, apply

SCORES = ("softmax", "sigmoid")
GROUP_SCORES = ("max", "top2")
TINIEST = 1e-20  # added to a sum of scores before the division, as DeepSeek-V3 does


class RoutingError(MLCError, ValueError):
    """A description of a routing that makes no sense."""


class Choice(NamedTuple):
    """The experts of each token, the best first: weights float32 [T, k], experts int32 [T, k]."""

    weights: Tensor
    experts: Tensor


@dataclass(frozen=True)
class Routing:
    """Chooses the ``k`` experts of each token by a router's logits.

    score: of an expert, ``softmax`` over all experts or ``sigmoid``. renormalize: whether the weights of a token are
    divided by their sum; with ``softmax`` that is the softmax of the chosen logits alone (gpt-oss, Granite). scale: a
    factor of the weights.

    groups: the experts are divided into so many groups; those outside of the ``kept_groups`` best groups of a token are
    not chosen (DeepSeek-AI 2024, "DeepSeek-V2", section 2.2.2, and "DeepSeek-V3", section 2.1.2). group_score: a
    group's best score, ``max``, or the sum of its two best ones, ``top2``.
    """

    k: int
    score: str = "softmax"
    renormalize: bool = False
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    group_score: str = "max"

    def __post_init__(self) -> None:
        for name, value, known in (("score", self.score, SCORES), ("group_score", self.group_score, GROUP_SCORES)):
            if value not in known:
                raise RoutingError(f"{name}: got {value!r}; expected {' or '.join(known)}")
        if not 1 <= self.kept_groups <= self.groups:
            raise RoutingError(f"kept_groups: got {self.kept_groups}; expected 1 to {self.groups}, the groups")

    def __call__(self, logits: Tensor, correction: Tensor | None = None) -> Choice:
        """logits: [..., E], flattened to T tokens. correction: [E], added to scores for the choice, not to weights."""
        logits = op.reshape(logits, (_count(logits), logits.shape[-1])).astype("float32")
        scores = op.softmax(logits) if self.score == "softmax" else op.sigmoid(logits)
        chosen_by = scores if correction is None else scores + correction.astype("float32")
        experts = op.top_indices(self._within_groups(chosen_by), k=self.k)
        weights = op.gather_elements(scores, experts, axis=1)
        if self.renormalize:
            weights = weights / (op.sum(weights, axis=1, keepdims=True) + TINIEST)
        return Choice(weights if self.scale == 1.0 else weights * self.scale, experts)

    def _within_groups(self, scores: Tensor) -> Tensor:
        """The scores, minus infinity outside of a token's best groups."""
        if self.kept_groups == self.groups:
            return scores
        tokens, experts = scores.shape
        if not isinstance(experts, int) or experts % self.groups:
            raise RoutingError(f"groups: got {self.groups}; expected a divisor of {experts}, the experts")
        grouped = op.reshape(scores, (tokens * self.groups, experts // self.groups))
        best = op.reshape(self._group_scores(grouped), (tokens, self.groups))
        kept = op.reshape(op.top_indices(best, k=self.kept_groups), (tokens, self.kept_groups, 1))
        number_kept = op.sum(op.equal(kept, op.arange(self.groups, dtype="int32")).astype("int32"), axis=1)
        inside = op.reshape(number_kept, (tokens * self.groups, 1)) > 0
        return op.reshape(op.where(inside, grouped, op.full((1, 1), -math.inf)), (tokens, experts))

    def _group_scores(self, grouped: Tensor) -> Tensor:
        if self.group_score == "max":
            return op.max(grouped, axis=1)
        return op.sum(op.gather_elements(grouped, op.top_indices(grouped, k=2), axis=1), axis=1)


def swiglu(x: Tensor) -> Tensor:
    """``silu(gate) * up`` of the halves of the last axis (Shazeer 2020, "GLU Variants Improve Transformer")."""
    gate, up = op.split(x, 2, axis=-1)
    return op.silu(gate) * up


def mixture(
    x: Tensor, choice: Choice, up: Experts, down: Experts, activation: Callable[[Tensor], Tensor] = swiglu
) -> Tensor:
    """The weighted sum of ``down(activation(up(x)))`` over the chosen experts of each token; shape and dtype of x.

    x: [..., D] with T tokens. Tokens are brought into the order of their experts, so that the weights of an expert are
    read once; a token's results are added in the order of its choices.
    """
    tokens, choices = choice.experts.shape
    ids = op.reshape(choice.experts, (tokens * choices,))
    flat = op.reshape(x, (tokens, x.shape[-1]))
    if tokens == 1:
        rows, places = op.zeros((choices,), "int32"), None
    else:
        order = op.sorted_places(ids)
        tokens_of = op.inverse_permutation(order)
        ids, rows = op.take(ids, tokens_of, axis=0), apply(ops.floor_divide, tokens_of, choices)
        places = op.reshape(order, (tokens, choices))
    y = down(activation(up(flat, ids, rows)), ids)
    return op.reshape(op.expert_sum(y, choice.weights, places), x.shape)


def _count(logits: Tensor) -> Size:
    return math.prod(logits.shape[:-1])
