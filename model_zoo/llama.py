"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

B batch, S sequence, T tokens (B x S), D hidden, H heads, K head size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderConfig):
    model_type: ClassVar[str] = "llama"
    chat_keys: ClassVar[tuple[str, ...]] = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "rms_norm_eps",
        "vocab_size",
        "tie_word_embeddings",
        "position_embedding_base",
        "rope_scaling",
        "context_window_size",
        "prefill_chunk_size",
        "num_key_value_heads",
        "head_dim",
        "tensor_parallel_shards",
        "pipeline_parallel_stages",
        "max_batch_size",
        "disaggregation",
    )

    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False


class LlamaMLP(nn.Module):
    def __init__(self, c: LlamaConfig):
        self.gate_up_proj = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=c.mlp_bias)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=c.mlp_bias)

    def forward(self, x_BSD: Tensor) -> Tensor:
        gate, up = op.split(self.gate_up_proj(x_BSD), 2, axis=-1)
        return self.down_proj(op.silu(gate) * up)


class LlamaAttention(nn.Module):
    def __init__(self, c: LlamaConfig):
        self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        all_heads = self.heads + 2 * self.kv_heads
        self.qkv_proj = nn.Linear(c.hidden_size, all_heads * self.head_dim, bias=c.attention_bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, c.hidden_size, bias=c.attention_bias)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        b, s, _ = x_BSD.shape
        qkv_THK = op.reshape(self.qkv_proj(x_BSD), (b * s, self.heads + 2 * self.kv_heads, self.head_dim))
        out_THK = cache.attention_with_fused_qkv(layer, qkv_THK, self.heads)
        return self.o_proj(op.reshape(out_THK, (b, s, self.heads * self.head_dim)))


class LlamaLayer(nn.Module):
    attention: ClassVar[Callable[..., nn.Module]] = LlamaAttention

    def __init__(self, c: LlamaConfig):
        self.self_attn = self.attention(c)
        self.mlp = LlamaMLP(c)
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x_BSD = x_BSD + self.self_attn(self.input_layernorm(x_BSD), cache, layer)
        return x_BSD + self.mlp(self.post_attention_layernorm(x_BSD))


class LlamaModel(nn.Module):
    layer: ClassVar[Callable[..., nn.Module]] = LlamaLayer

    def __init__(self, c: LlamaConfig):
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList([self.layer(c) for _ in range(c.num_hidden_layers)])
        self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache) -> Tensor:
        for i, layer in enumerate(self.layers):
            x_BSD = layer(x_BSD, cache, i)
        return self.norm(x_BSD)


class LlamaForCausalLM(nn.Module):
    decoder: ClassVar[type[LlamaModel]] = LlamaModel

    def __init__(self, c: LlamaConfig):
        self.model = self.decoder(c)
        self.lm_head = None if c.tie_word_embeddings else nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.model.embed_tokens(input_ids)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache) -> Tensor:
        return self.model(x_BSD, cache)

    def logits(self, x_BSD: Tensor) -> Tensor:
        return self.lm_head(x_BSD) if self.lm_head else self.model.embed_tokens.lm_head_forward(x_BSD)


def weights(c: LlamaConfig) -> WeightMap:
    m = WeightMap()
    for layer in m.layers("model.layers.{}", c.num_hidden_layers):
        m.concat(f"{layer}.self_attn.qkv_proj", [f"{layer}.self_attn.{p}_proj" for p in "qkv"], axis=0)
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.mlp.{p}_proj" for p in ("gate", "up")], axis=0)
        m.unused(f"{layer}.self_attn.rotary_emb.inv_freq")
    if c.tie_word_embeddings:
        m.tied("lm_head.weight", to="model.embed_tokens.weight")
    return m


TINY = LlamaConfig(
    vocab_size=1003,
    hidden_size=100,
    intermediate_size=136,
    num_hidden_layers=2,
    num_attention_heads=5,
    num_key_value_heads=1,
    head_dim=20,
    context_window_size=256,
)
ARCHITECTURE = Architecture("llama", LlamaConfig, LlamaForCausalLM, weights, tiny=TINY)
