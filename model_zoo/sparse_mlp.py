"""The feed-forward part of models with experts, under Qwen's names.

B batch, S sequence, D hidden.
"""

from __future__ import annotations

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from model_zoo.expert_weights import expert_rules
from model_zoo.weight_map import WeightMap


class SparseMLP(nn.Module):
    """``experts`` SwiGLU networks of ``inner`` elements, of which ``routing`` chooses some for each token."""

    def __init__(self, hidden_size: int, inner: int, experts: int, routing: nn.Routing):
        self.routing = routing
        self.gate = nn.Linear(hidden_size, experts, bias=False)
        self.moe_gate_up_proj = nn.Experts(experts, hidden_size, 2 * inner)
        self.moe_down_proj = nn.Experts(experts, inner, hidden_size)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return nn.mixture(x_BSD, self.routing(self.gate(x_BSD)), self.moe_gate_up_proj, self.moe_down_proj)


def sparse_mlp_rules(m: WeightMap, mlp: str, experts: int) -> None:
    """The rules of the SparseMLP with the path ``mlp``."""
    up, down = f"{mlp}.moe_gate_up_proj.weight", f"{mlp}.moe_down_proj.weight"
    names = ("gate_proj", "up_proj", "down_proj")
    expert_rules(m, up, down, experts, f"{mlp}.experts", f"{mlp}.experts.{{}}", names)
