"""Mixtral: Mistral with a mixture of experts instead of the MLP (Jiang et al. 2024, "Mixtral of Experts").

B batch, S sequence, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo import llama
from model_zoo.architecture import Architecture
from model_zoo.config_check import check_chosen_experts
from model_zoo.expert_weights import expert_rules
from model_zoo.mistral import MistralConfig
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(MistralConfig):
    model_type: ClassVar[str] = "mixtral"
    chat_keys: ClassVar[tuple[str, ...]] = (*MistralConfig.chat_keys, "num_local_experts", "num_experts_per_tok")

    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    sliding_window: int | None = None  # type: ignore[misc]  # as in Mistral
    num_local_experts: int = 8
    num_experts_per_tok: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen_experts(self.num_experts_per_tok, "num_local_experts", self.num_local_experts)


class MixtralMoE(nn.Module):
    def __init__(self, c: MixtralConfig):
        self.routing = nn.Routing(c.num_experts_per_tok, renormalize=True)
        self.gate = nn.Linear(c.hidden_size, c.num_local_experts, bias=False)
        self.e1_e3 = nn.Experts(c.num_local_experts, c.hidden_size, 2 * c.intermediate_size)
        self.e2 = nn.Experts(c.num_local_experts, c.intermediate_size, c.hidden_size)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return nn.mixture(x_BSD, self.routing(self.gate(x_BSD)), self.e1_e3, self.e2)


class MixtralLayer(nn.Module):
    def __init__(self, c: MixtralConfig):
        self.self_attn = llama.LlamaAttention(c)
        self.moe = MixtralMoE(c)
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x_BSD = x_BSD + self.self_attn(self.input_layernorm(x_BSD), cache, layer)
        return x_BSD + self.moe(self.post_attention_layernorm(x_BSD))


class MixtralModel(llama.LlamaModel):
    layer: ClassVar[type[nn.Module]] = MixtralLayer


class MixtralForCausalLM(llama.LlamaForCausalLM):
    decoder: ClassVar[type[llama.LlamaModel]] = MixtralModel


def weights(c: MixtralConfig) -> WeightMap:
    m = WeightMap()
    for layer in m.layers("model.layers.{}", c.num_hidden_layers):
        m.concat(f"{layer}.self_attn.qkv_proj", [f"{layer}.self_attn.{p}_proj" for p in "qkv"], axis=0)
        old, new = f"{layer}.block_sparse_moe", f"{layer}.mlp"
        m.either(f"{layer}.moe.gate.weight", f"{old}.gate.weight", f"{new}.gate.weight")
        up, down = f"{layer}.moe.e1_e3.weight", f"{layer}.moe.e2.weight"
        separate, names = f"{old}.experts.{{}}", ("w1", "w3", "w2")
        expert_rules(m, up, down, c.num_local_experts, f"{new}.experts", separate, names)
        m.unused(f"{layer}.self_attn.rotary_emb.inv_freq")
    if c.tie_word_embeddings:
        m.tied("lm_head.weight", to="model.embed_tokens.weight")
    return m


TINY = MixtralConfig(
    vocab_size=1003,
    hidden_size=100,
    intermediate_size=136,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=20,
    num_local_experts=5,
    context_window_size=256,
)
ARCHITECTURE = Architecture(
    "mixtral", MixtralConfig, MixtralForCausalLM, weights, TINY, quantization=Exceptions(kept=("*.gate",))
)
