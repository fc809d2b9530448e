"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

B batch, S sequence, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.attention import SelfAttention
from mlc_compiler.nn.feed_forward import GatedMLP
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import PreNormLayer, rms_norm
from model_zoo.weight_rules import llama_names


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


class LlamaMLP(GatedMLP):
    def __init__(self, c: LlamaConfig):
        super().__init__(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)


class LlamaAttention(SelfAttention):
    def __init__(self, c: LlamaConfig):
        sizes = (c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim)
        super().__init__(*sizes, qkv_bias=c.attention_bias, out_bias=c.attention_bias)


class LlamaLayer(PreNormLayer):
    attention: ClassVar[Callable[..., nn.Module]] = LlamaAttention

    def __init__(self, c: LlamaConfig):
        super().__init__(c.hidden_size, rms_norm(c.rms_norm_eps), self.attention(c), LlamaMLP(c))


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
ARCHITECTURE = Architecture("llama", LlamaConfig, LlamaForCausalLM, llama_names, tiny=TINY)
