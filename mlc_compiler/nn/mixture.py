"""Mixture of experts: routing by a router's logits, and the layer of selected experts.

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
from dataclasses import asdict, dataclass
from typing import NamedTuple

from . import op
from .layers import Experts
from .tensor import Tensor


class Choice(NamedTuple):
    """The selected experts of each token, best first: weights float32 [T, k], experts int32 [T, k]."""

    weights: Tensor
    experts: Tensor


@dataclass(frozen=True)
class Routing:
    """Selects the ``k`` experts of each token by a router's logits.

    The fields are the attributes of the operator ``nn.route``, which rejects invalid combinations.
    """

    k: int
    score: str = "softmax"
    renormalize: bool = False
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    group_best: int = 1
    margin: float = 0.0

    def __call__(self, logits: Tensor, correction: Tensor | None = None) -> Choice:
        """Select experts. logits: [..., E], flattened to T tokens. correction: [E], added to scores for selection."""
        flat = op.reshape(logits, (math.prod(logits.shape[:-1]), logits.shape[-1]))
        return Choice(*op.route(flat, correction=correction, **asdict(self)))


def gated(activation: Callable[[Tensor], Tensor], limit: float | None = None) -> Callable[[Tensor], Tensor]:
    """``activation(gate) * up`` for gate and up in the halves of the last axis (Shazeer 2020, "GLU Variants …").

    limit: maximum of ``activation(gate)``, and maximum magnitude of ``up``; None: unlimited.
    """

    def apply(x: Tensor) -> Tensor:
        gate, up = op.split(x, 2, axis=-1)
        if limit is None:
            return activation(gate) * up
        return op.minimum(activation(gate), limit) * op.clip(up, -limit, limit)

    return apply


def swiglu(x: Tensor) -> Tensor:
    """``silu(gate) * up`` for gate and up in the halves of the last axis."""
    return gated(op.silu)(x)


def clamped_swiglu(alpha: float, limit: float) -> Callable[[Tensor], Tensor]:
    """``(up + 1) * gate * sigmoid(alpha * gate)`` for clamped gate and up in the halves of the last axis.

    gate is clamped to at most ``limit``, up to [-limit, limit] (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model card").
    """

    def activation(x: Tensor) -> Tensor:
        gate, up = op.split(x, 2, axis=-1)
        gate, up = op.minimum(gate, limit), op.clip(up, -limit, limit)
        return (up + 1.0) * gate * op.sigmoid(gate * alpha)

    return activation


def mixture(
    x: Tensor, choice: Choice, up: Experts, down: Experts, activation: Callable[[Tensor], Tensor] = swiglu
) -> Tensor:
    """The weighted sum of ``down(activation(up(x)))`` over each token's selected experts; shape and dtype of x.

    x: [..., D] with T tokens. Tokens are grouped by expert, so that the weights of an expert are
    read once; a token's results are summed in the order of its selected experts.
    """
    tokens, choices = choice.experts.shape
    shape = (*x.shape[:-1], choices)
    if tokens == 1:
        ids, rows, places = op.reshape(choice.experts, (choices,)), op.zeros((choices,), "int32"), None
    else:
        order, ids, rows = op.group_by_expert(choice.experts, up.num_experts)
        places = op.reshape(order, shape)
    y = down(activation(up(op.reshape(x, (tokens, x.shape[-1])), ids, rows)), ids)
    return op.expert_sum(y, op.reshape(choice.weights, shape), places)
