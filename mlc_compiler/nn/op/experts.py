"""Operations of mixtures of experts, see ``relax.ops.experts``."""

from __future__ import annotations

from ...relax import ops
from ..tensor import Tensor, apply_tuple
from .traced import traced

expert_linear = traced(ops.expert_linear)
expert_sum = traced(ops.expert_sum)
inverse_permutation = traced(ops.inverse_permutation)
sorted_places = traced(ops.sorted_places)


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
) -> tuple[Tensor, ...]:
    """The weights, float32 [T, k], and the experts, int32 [T, k], of each token; see ``relax.ops.routing``."""
    attrs = {"k": k, "score": score, "renormalize": renormalize, "scale": scale}
    return apply_tuple(
        ops.route, logits, correction, **attrs, groups=groups, kept_groups=kept_groups, group_best=group_best
    )
