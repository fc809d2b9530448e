"""Qwen2: Llama with biases on queries, keys and values only.

B batch, S sequence, T tokens (B x S), D hidden, H heads, K head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo import llama
from model_zoo.architecture import Architecture
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class Qwen2Config(llama.LlamaConfig):
    model_type: ClassVar[str] = "qwen2"
    chat_keys: ClassVar[tuple[str, ...]] = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "rope_theta",
        "vocab_size",
        "tie_word_embeddings",
        "context_window_size",
        "prefill_chunk_size",
        "tensor_parallel_shards",
        "head_dim",
        "max_batch_size",
    )


class Qwen2Attention(nn.Module):
    def __init__(self, c: Qwen2Config):
        self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.c_attn = nn.Linear(c.hidden_size, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=True)
        self.o_proj = nn.Linear(self.heads * self.head_dim, c.hidden_size, bias=False)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        b, s, _ = x_BSD.shape
        qkv_THK = op.reshape(self.c_attn(x_BSD), (b * s, self.heads + 2 * self.kv_heads, self.head_dim))
        out_THK = cache.attention_with_fused_qkv(layer, qkv_THK, self.heads)
        return self.o_proj(op.reshape(out_THK, (b, s, self.heads * self.head_dim)))


class Qwen2Layer(llama.LlamaLayer):
    attention: ClassVar[type[nn.Module]] = Qwen2Attention


class Qwen2Model(llama.LlamaModel):
    layer: ClassVar[type[nn.Module]] = Qwen2Layer


class Qwen2ForCausalLM(llama.LlamaForCausalLM):
    decoder: ClassVar[type[llama.LlamaModel]] = Qwen2Model


def weights(c: Qwen2Config) -> WeightMap:
    m = WeightMap()
    for layer in m.layers("model.layers.{}", c.num_hidden_layers):
        m.concat(f"{layer}.self_attn.c_attn", [f"{layer}.self_attn.{p}_proj" for p in "qkv"], axis=0)
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.mlp.{p}_proj" for p in ("gate", "up")], axis=0)
        m.unused(f"{layer}.self_attn.rotary_emb.inv_freq")
    if c.tie_word_embeddings:
        m.tied("lm_head.weight", to="model.embed_tokens.weight")
    return m


TINY = Qwen2Config(
    vocab_size=1003,
    hidden_size=100,
    intermediate_size=136,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=20,
    tie_word_embeddings=True,
    context_window_size=256,
)
ARCHITECTURE = Architecture("qwen2", Qwen2Config, Qwen2ForCausalLM, weights, tiny=TINY)
