"""gpt-oss: learned attention sinks, a sliding window in every other layer, experts with biases and clamped SwiGLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import check_chosen_experts
from model_zoo.expert_weights import joined
from model_zoo.layer_types import LayerTypesConfig
from model_zoo.transformer import CausalLM, attention, pre_norm_model, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Permute, Transpose
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names
from quantization.rewrite import Exceptions

YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True, kw_only=True)
class GptOssConfig(LayerTypesConfig):
    """swiglu_alpha, swiglu_limit: see ``nn.clamped_swiglu``."""

    model_type: ClassVar[str] = "gpt_oss"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "num_experts_per_tok": ("experts_per_token",),
        "num_local_experts": ("num_experts",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"initial_context_length"})

    head_dim: int = 64
    rms_norm_eps: float = 1e-5
    rope_theta: float = 150000.0
    rope_scaling: Mapping[str, Any] | None = field(default_factory=YARN.copy)
    context_window_size: int = 131072
    attention_bias: bool = True
    sliding_window: int | None = 128  # type: ignore[misc]  # a class constant of DecoderConfig
    num_local_experts: int = 128
    num_experts_per_tok: int = 4
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen_experts(self.num_experts_per_tok, "num_local_experts", self.num_local_experts)

    @property
    def pattern(self) -> int | None:
        return 2


class GptOssMLP(nn.Module):
    def __init__(self, c: GptOssConfig):
        self.routing = nn.Routing(c.num_experts_per_tok, renormalize=True)
        self.activation = nn.clamped_swiglu(c.swiglu_alpha, c.swiglu_limit)
        self.router = nn.Linear(c.hidden_size, c.num_local_experts)
        self.moe_gate_up_proj = nn.Experts(c.num_local_experts, c.hidden_size, 2 * c.intermediate_size, bias=True)
        self.moe_down_proj = nn.Experts(c.num_local_experts, c.intermediate_size, c.hidden_size, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        choice = self.routing(self.router(x))
        return nn.mixture(x, choice, self.moe_gate_up_proj, self.moe_down_proj, self.activation)


def model(c: GptOssConfig) -> CausalLM:
    def attend() -> nn.Module:
        return attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, sinks=True)

    return pre_norm_model(c, rms_norm(c.rms_norm_eps), attend, lambda: GptOssMLP(c))


def weights(c: GptOssConfig) -> WeightMap:
    """Expert weights are stored as [E, in, out] with interleaved columns of gates and inputs; GGUF needs no change."""
    m = llama_names(c, gated=False)
    in_turn: dict[str, Any] = {"view": (c.intermediate_size, 2), "order": (1, 0), "axis": 1}
    for layer in m.layers(LAYER, c.num_hidden_layers):
        up, down = f"{layer}.mlp.moe_gate_up_proj", f"{layer}.mlp.moe_down_proj"
        stored = f"{layer}.mlp.experts"
        weight = Transpose((CheckpointTensor(f"{stored}.gate_up_proj"),))
        bias = CheckpointTensor(f"{stored}.gate_up_proj_bias")
        m.either(f"{up}.weight", Permute((weight,), **in_turn), joined(stored))
        m.either(f"{up}.bias", Permute((bias,), **in_turn), joined(stored, "bias"))
        outer = Transpose((CheckpointTensor(f"{stored}.down_proj"),))
        m.either(f"{down}.weight", outer, f"{stored}.down_proj.weight")
        m.either(f"{down}.bias", f"{stored}.down_proj_bias", f"{stored}.down_proj.bias")
        m.either(f"{layer}.self_attn.sinks", f"{layer}.self_attn.sinks", f"{layer}.self_attn.sinks.weight")
    return m


TINY = GptOssConfig(**tiny.SIZES, sliding_window=21, num_local_experts=7, num_experts_per_tok=3)
ARCHITECTURE = Architecture(
    "gpt_oss", GptOssConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.router",))
)
