"""Qwen2-MoE: Qwen2 with a mixture of experts instead of the MLP, and a gated shared expert.

B batch, S sequence, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_errors import UnsupportedError
from model_zoo import llama, qwen2
from model_zoo.architecture import Architecture
from model_zoo.config_check import check_chosen_experts
from model_zoo.sparse_mlp import SharedSparseMLP, shared_sparse_mlp_rules
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class Qwen2MoeConfig(qwen2.Qwen2Config):
    model_type: ClassVar[str] = "qwen2_moe"
    chat_keys: ClassVar[tuple[str, ...]] = (
        *qwen2.Qwen2Config.chat_keys,
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "num_experts_per_tok",
        "num_experts",
        "decoder_sparse_step",
        "norm_topk_prob",
    )

    moe_intermediate_size: int = 1408
    shared_expert_intermediate_size: int = 5632
    num_experts_per_tok: int = 4
    num_experts: int = 60
    decoder_sparse_step: int = 1
    norm_topk_prob: bool = False
    qkv_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_sparse_step != 1:
            raise UnsupportedError(
                f"decoder_sparse_step: got {self.decoder_sparse_step}; expected 1, experts in all layers",
                where=["config.json"],
            )
        if not self.qkv_bias:
            raise UnsupportedError("qkv_bias: got False; expected True", where=["config.json"])
        check_chosen_experts(self.num_experts_per_tok, "num_experts", self.num_experts)


def mixture(c: Qwen2MoeConfig) -> SharedSparseMLP:
    routing = nn.Routing(c.num_experts_per_tok, renormalize=c.norm_topk_prob)
    sizes = (c.hidden_size, c.moe_intermediate_size, c.num_experts)
    return SharedSparseMLP(*sizes, routing, c.shared_expert_intermediate_size)


class Qwen2MoeLayer(nn.Module):
    def __init__(self, c: Qwen2MoeConfig):
        self.self_attn = qwen2.Qwen2Attention(c)
        self.mlp = mixture(c)
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x_BSD = x_BSD + self.self_attn(self.input_layernorm(x_BSD), cache, layer)
        return x_BSD + self.mlp(self.post_attention_layernorm(x_BSD))


class Qwen2MoeModel(llama.LlamaModel):
    layer: ClassVar[type[nn.Module]] = Qwen2MoeLayer


class Qwen2MoeForCausalLM(llama.LlamaForCausalLM):
    decoder: ClassVar[type[llama.LlamaModel]] = Qwen2MoeModel


def weights(c: Qwen2MoeConfig) -> WeightMap:
    m = WeightMap()
    for layer in m.layers("model.layers.{}", c.num_hidden_layers):
        m.concat(f"{layer}.self_attn.c_attn", [f"{layer}.self_attn.{p}_proj" for p in "qkv"], axis=0)
        shared_sparse_mlp_rules(m, f"{layer}.mlp", c.num_experts, c.hidden_size)
        m.unused(f"{layer}.self_attn.rotary_emb.inv_freq")
    if c.tie_word_embeddings:
        m.tied("lm_head.weight", to="model.embed_tokens.weight")
    return m


TINY = Qwen2MoeConfig(
    vocab_size=1003,
    hidden_size=100,
    intermediate_size=136,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=20,
    moe_intermediate_size=36,
    shared_expert_intermediate_size=72,
    num_experts=7,
    num_experts_per_tok=3,
    context_window_size=256,
)
ARCHITECTURE = Architecture(
    "qwen2_moe", Qwen2MoeConfig, Qwen2MoeForCausalLM, weights, TINY, quantization=Exceptions(kept=("*gate",))
)
