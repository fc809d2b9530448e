"""LFM2-MoE: LFM2 with experts in all but the first layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import invalid
from model_zoo.expert_weights import expert_rules
from model_zoo.hybrid import FULL
from model_zoo.lfm2 import CONV, Lfm2Config, lfm2_rules, mixer
from model_zoo.sparse_mlp import SparseMLP
from model_zoo.transformer import CausalLM, PreNormLayer, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class Lfm2MoeConfig(Lfm2Config):
    """The first ``num_dense_layers`` layers have an MLP of ``intermediate_size`` elements, the others experts of
    ``moe_intermediate_size``. use_expert_bias: whether a learned bias is added to scores for the choice of experts.
    """

    model_type: ClassVar[str] = "lfm2_moe"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"tie_word_embeddings": ("tie_embedding",)}
    block_auto_adjust_ff_dim: bool = False
    moe_intermediate_size: int = 1792
    num_dense_layers: int | None = 2
    num_experts: int = 32
    num_experts_per_tok: int = 4
    use_expert_bias: bool = True
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_experts_per_tok > self.num_experts:
            raise invalid("num_experts_per_tok", self.num_experts_per_tok, f"at most num_experts, {self.num_experts}")

    def is_dense(self, layer: int) -> bool:
        return layer < (self.num_dense_layers or 0)


def feed_forward(c: Lfm2MoeConfig, layer: int) -> nn.Module:
    if c.is_dense(layer):
        return gated_mlp(c)
    routing = nn.Routing(c.num_experts_per_tok, "sigmoid", c.norm_topk_prob, c.routed_scaling_factor)
    return SparseMLP(c.hidden_size, c.moe_intermediate_size, c.num_experts, routing, corrected=c.use_expert_bias)


def model(c: Lfm2MoeConfig) -> CausalLM:
    norm = rms_norm(c.norm_eps)
    layers = [PreNormLayer(c.hidden_size, norm, mixer(c, kind), feed_forward(c, i)) for i, kind in enumerate(c.types)]
    return CausalLM(c, layers, norm(c.hidden_size))


def weights(c: Lfm2MoeConfig) -> WeightMap:
    m = lfm2_rules(c, [c.is_dense(i) for i in range(c.num_hidden_layers)])
    for i, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        if c.is_dense(i):
            continue
        mlp, source = f"{layer}.mlp", f"{layer}.feed_forward"
        m.rename(f"{mlp}.gate", f"{source}.gate")
        up, down = f"{mlp}.moe_gate_up_proj.weight", f"{mlp}.moe_down_proj.weight"
        experts = f"{source}.experts"
        expert_rules(m, up, down, c.num_experts, experts, f"{experts}.{{}}", ("w1", "w3", "w2"))
        if c.use_expert_bias:
            m.rename(f"{mlp}.e_score_correction_bias", f"{source}.expert_bias")
    return m


EXPERTS: dict[str, Any] = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 36,
    "num_dense_layers": 1,
}
TINY = Lfm2MoeConfig(**tiny.SIZES, **EXPERTS, layer_types=(CONV, FULL))
ARCHITECTURE = Architecture(
    "lfm2_moe", Lfm2MoeConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.gate",))
)
