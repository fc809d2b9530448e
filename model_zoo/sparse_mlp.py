"""Mixture of experts instead of an MLP, with Qwen's parameter names.

B batch, S sequence, D hidden.
"""

from __future__ import annotations

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.feed_forward import Activation, GatedMLP
from model_zoo.expert_weights import expert_rules
from model_zoo.weight_expr import CheckpointTensor, Reshape
from model_zoo.weight_map import WeightMap

QWEN, MIXTRAL = ("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")


class SparseMLP(nn.Module):
    """``experts`` gated MLPs of ``inner`` elements, of which ``routing`` chooses some for each token.

    corrected: a learned bias, float32 [experts] under any scheme, is added to scores for the choice, but not for the
    weights. float32_router: logits are computed in float32. shared: a module for all tokens, whose result is added.
    limit: see ``nn.gated``.
    """

    def __init__(
        self,
        hidden_size: int,
        inner: int,
        experts: int,
        routing: nn.Routing,
        *,
        corrected: bool = False,
        float32_router: bool = False,
        shared: nn.Module | None = None,
        activation: Activation = op.silu,
        limit: float | None = None,
    ):
        self.routing, self.float32_router, self.activation = routing, float32_router, nn.gated(activation, limit)
        self.gate = nn.Linear(hidden_size, experts, bias=False)
        self.e_score_correction_bias = nn.Parameter((experts,), keeps_dtype=True) if corrected else None
        self.moe_gate_up_proj = nn.Experts(experts, hidden_size, 2 * inner)
        self.moe_down_proj = nn.Experts(experts, inner, hidden_size)
        self.shared_experts = shared

    def forward(self, x_BSD: Tensor) -> Tensor:
        logits = self.gate(x_BSD.astype("float32") if self.float32_router else x_BSD)
        choice = self.routing(logits, self.e_score_correction_bias)
        y_BSD = nn.mixture(x_BSD, choice, self.moe_gate_up_proj, self.moe_down_proj, self.activation)
        return y_BSD + self.shared_experts(x_BSD) if self.shared_experts else y_BSD


class SharedSparseMLP(SparseMLP):
    """A SparseMLP with a shared expert of ``shared`` elements, whose result has its own gate."""

    def __init__(self, hidden_size: int, inner: int, experts: int, routing: nn.Routing, shared: int):
        super().__init__(hidden_size, inner, experts, routing)
        self.shared_expert = GatedMLP(hidden_size, shared)
        self.shared_expert_gate = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return super().forward(x_BSD) + op.sigmoid(self.shared_expert_gate(x_BSD)) * self.shared_expert(x_BSD)


def sparse_mlp_rules(m: WeightMap, mlp: str, experts: int, names: tuple[str, str, str] = QWEN) -> None:
    """Add the rules of the SparseMLP at ``mlp``; names: those of an expert's gate, up and down projection."""
    up, down = f"{mlp}.moe_gate_up_proj.weight", f"{mlp}.moe_down_proj.weight"
    expert_rules(m, up, down, experts, f"{mlp}.experts", f"{mlp}.experts.{{}}", names)


def shared_sparse_mlp_rules(m: WeightMap, mlp: str, experts: int, hidden_size: int) -> None:
    """Add the rules of the SharedSparseMLP at ``mlp``."""
    sparse_mlp_rules(m, mlp, experts)
    shared = f"{mlp}.shared_expert"
    m.concat(f"{shared}.gate_up_proj", [f"{shared}.gate_proj", f"{shared}.up_proj"])
    gate = f"{mlp}.shared_expert_gate.weight"
    m.rename(gate, Reshape((CheckpointTensor(gate),), (1, hidden_size)))  # GGUF files have a vector


def block_sparse_rules(m: WeightMap, layer: str, experts: int, *, gate: str = "gate") -> None:
    """Add the rules of a layer's SparseMLP for Mixtral's names; gate: name of the router in other checkpoints."""
    old, new = f"{layer}.block_sparse_moe", f"{layer}.mlp"
    m.either(f"{new}.gate.weight", f"{old}.gate.weight", f"{new}.{gate}.weight")
    up, down = f"{new}.moe_gate_up_proj.weight", f"{new}.moe_down_proj.weight"
    expert_rules(m, up, down, experts, f"{new}.experts", f"{old}.experts.{{}}", MIXTRAL)
