"""nanochat: norms without weights, also of embeddings, queries and keys; RoPE with negated angles; squared ReLU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from mlc_compiler.nn.norms import UnweightedRMSNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.rope import RopeParameters
from model_zoo.transformer import CausalLM, attention, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class NanoChatConfig(DecoderConfig):
    model_type: ClassVar[str] = "nanochat"
    rms_norm_eps: float = 1e-6
    hidden_act: str = "relu2"
    attention_bias: bool = False
    final_logit_softcapping: float | None = 15.0

    @cached_property
    def rope(self) -> RopeParameters | None:
        forward = super().rope
        return forward and replace(forward, inv_freq=-forward.inv_freq)


def model(c: NanoChatConfig) -> CausalLM:
    def norm(size: int) -> UnweightedRMSNorm:
        return UnweightedRMSNorm(size, c.rms_norm_eps)

    # RoPE preserves the norm of a vector, so norms without weights may come before it.
    return pre_norm_model(
        c,
        norm,
        lambda: attention(c, qkv_bias=c.attention_bias, q_norm=norm(c.head_dim), k_norm=norm(c.head_dim)),
        lambda: plain_mlp(c, c.hidden_act, bias=False),
        embedding_norm=norm(c.hidden_size),
        logit_soft_cap=c.final_logit_softcapping or 0.0,
    )


def weights(c: NanoChatConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.rename(f"{layer}.mlp.up_proj", f"{layer}.mlp.fc1")
        m.rename(f"{layer}.mlp.down_proj", f"{layer}.mlp.fc2")
    return m


ARCHITECTURE = Architecture("nanochat", NanoChatConfig, model, weights, tiny=NanoChatConfig(**tiny.SIZES))
