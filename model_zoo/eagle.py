"""EAGLE: a draft head of Llama layers over a token's embedding and the previous hidden state (Li et al. 2024).

The first layer has no norm before attention. Logits are computed by the output head of the target model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op, spec
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.states import State
from model_zoo import draft_layers, tiny
from model_zoo.architecture import Architecture
from model_zoo.llama import LlamaConfig
from model_zoo.transformer import PreNormLayer, Transformer, Unchanged, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class EagleConfig(LlamaConfig):
    """bias: whether the linear layer that joins embedding and hidden state has a bias."""

    model_type: ClassVar[str] = "eagle"
    bias: bool = True


class Eagle(nn.Module):
    def __init__(self, c: EagleConfig):
        norm = rms_norm(c.rms_norm_eps)

        def layer() -> PreNormLayer:
            attend = attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
            return PreNormLayer(c.hidden_size, norm, attend, gated_mlp(c, bias=c.mlp_bias))

        layers = [layer() for _ in range(c.num_hidden_layers)]
        layers[0].input_layernorm = Unchanged()
        self.model = Transformer(c, layers, None, None, None)
        self.fc = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=c.bias)

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.model.embed_tokens(input_ids)

    def fuse(self, input_embed: Tensor, hidden_states: Tensor) -> Tensor:
        """[S, D] each -> [S, D]"""
        return self.fc(op.concat([input_embed, hidden_states], dim=-1))

    def forward(self, x_BSD: Tensor, *caches: PagedKVCache) -> Tensor:
        return self.model(x_BSD, caches)


def entry_points(model: Eagle, c: EagleConfig, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """embed, and those of ``draft_layers``."""

    def embed(input_ids: Tensor) -> Tensor:
        return model.embed(input_ids).astype(dtype)

    ids = {"input_ids": spec.Tensor(["seq_len"], "int32")}
    embedding = spec.Function(embed, ids, "packed", {"seq_len": c.prefill_chunk_size})
    return {"embed": embedding, **draft_layers.entry_points(model, c, states, dtype)}


def weights(c: EagleConfig) -> WeightMap:
    m = llama_names(c)
    m.optional_prefix("model.")
    return m


TINY = EagleConfig(**tiny.SIZES)
ARCHITECTURE = Architecture("eagle", EagleConfig, Eagle, weights, tiny=TINY, entry_points=entry_points)
