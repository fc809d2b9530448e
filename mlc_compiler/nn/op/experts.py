"""Operations for mixture of experts, see ``relax.ops.experts``."""

from __future__ import annotations

from ...relax import ops
from ..tensor import Tensor, apply_tuple
from .traced import traced

expert_linear = traced(ops.expert_linear)
expert_sum = traced(ops.expert_sum)


def group_by_expert(experts: Tensor, num_experts: int) -> tuple[Tensor, ...]:
    """Sort the choices of all tokens by expert: their positions, and each position's expert and token."""
    return apply_tuple(ops.group_by_expert, experts, num_experts=num_experts)


def route(
    logits: Tensor,
    k: int,
    correction: Tensor | None = None,
    score: str = "softmax",
    renormalize: bool = False,
    scale: float = 1.0,
    groups: int = 1,
    kept_groups: int = 1,
    group_best: int = 1,
    margin: float = 0.0,
) -> tuple[Tensor, ...]:
    """Select experts: weights, float32 [T, k], and experts, int32 [T, k], of each token; see ``relax.ops.routing``."""
    weights = {"renormalize": renormalize, "scale": scale, "margin": margin}
    limits = {"groups": groups, "kept_groups": kept_groups, "group_best": group_best}
    return apply_tuple(ops.route, logits, correction, k=k, score=score, **weights, **limits)
