"""GPT-2: LayerNorm, learned positions, multi-head attention with biases, GELU.

B batch, S sequence, T tokens (B x S), D hidden, H heads, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class GPT2Config(DecoderConfig):
    """max_position_embeddings: rows of the table of learned positions."""

    model_type: ClassVar[str] = "gpt2"
    neutral: ClassVar[Mapping[str, tuple[str, ...]]] = {"hidden_act": ("gelu_pytorch_tanh", "gelu_new")}
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner",),
        "max_position_embeddings": ("n_positions", "n_ctx"),
        "context_window_size": ("n_positions", "n_ctx"),
    }
    chat_keys: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "n_embd",
        "n_layer",
        "n_head",
        "layer_norm_epsilon",
        "n_inner",
        "context_window_size",
        "prefill_chunk_size",
        "scale_attn_by_inverse_layer_idx",
        "tensor_parallel_shards",
        "head_dim",
        "max_batch_size",
        "disaggregation",
    )
    rope: ClassVar[None] = None

    intermediate_size: int = 0
    max_position_embeddings: int = 0
    layer_norm_epsilon: float = 1e-5
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        self._fill("max_position_embeddings", self.context_window_size)
        super().__post_init__()
        self.check_positions(self.max_position_embeddings)


class GPT2Attention(nn.Module):
    def __init__(self, c: GPT2Config, layer: int):
        self.heads, self.head_dim = c.num_attention_heads, c.head_dim
        self.scale = 1 / math.sqrt(c.head_dim) / (layer + 1 if c.scale_attn_by_inverse_layer_idx else 1)
        self.c_attn = nn.Linear(c.hidden_size, 3 * c.hidden_size)
        self.c_proj = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        b, s, d = x_BSD.shape
        qkv_THK = op.reshape(self.c_attn(x_BSD), (b * s, 3 * self.heads, self.head_dim))
        out_THK = cache.attention_with_fused_qkv(layer, qkv_THK, self.heads, self.scale)
        return self.c_proj(op.reshape(out_THK, (b, s, d)))


class GPT2MLP(nn.Module):
    def __init__(self, c: GPT2Config):
        self.c_fc = nn.Linear(c.hidden_size, c.intermediate_size)
        self.c_proj = nn.Linear(c.intermediate_size, c.hidden_size)

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.c_proj(op.gelu(self.c_fc(x_BSD), approximate="tanh"))


class GPT2Layer(nn.Module):
    def __init__(self, c: GPT2Config, layer: int):
        self.ln_1 = nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon)
        self.attn = GPT2Attention(c, layer)
        self.ln_2 = nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon)
        self.mlp = GPT2MLP(c)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x_BSD = x_BSD + self.attn(self.ln_1(x_BSD), cache, layer)
        return x_BSD + self.mlp(self.ln_2(x_BSD))


class GPT2Model(nn.Module):
    def __init__(self, c: GPT2Config):
        self.wte = nn.Embedding(c.vocab_size, c.hidden_size)
        self.wpe = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.h = nn.ModuleList([GPT2Layer(c, i) for i in range(c.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache) -> Tensor:
        positions_TD = self.wpe(cache.token_pos).astype(x_BSD.dtype)
        x_BSD = x_BSD + op.reshape(positions_TD, x_BSD.shape)
        for i, layer in enumerate(self.h):
            x_BSD = layer(x_BSD, cache, i)
        return self.ln_f(x_BSD)


class GPT2LMHeadModel(nn.Module):
    """The head has its own parameter even if tied to ``wte``: the public weight format stores the weights twice."""

    def __init__(self, c: GPT2Config):
        self.transformer = GPT2Model(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.transformer.wte(input_ids)

    def forward(self, x_BSD: Tensor, cache: PagedKVCache) -> Tensor:
        return self.transformer(x_BSD, cache)

    def logits(self, x_BSD: Tensor) -> Tensor:
        return self.lm_head(x_BSD)


def weights(c: GPT2Config) -> WeightMap:
    m = WeightMap()
    m.optional_prefix("transformer.")
    for layer in m.layers("transformer.h.{}", c.num_hidden_layers):
        for conv in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            m.transpose(f"{layer}.{conv}")
        m.unused(f"{layer}.attn.bias")
        m.unused(f"{layer}.attn.masked_bias")
    if c.tie_word_embeddings:
        m.rename("lm_head", "transformer.wte")
        m.tied("lm_head.weight", to="transformer.wte.weight")
    return m


TINY = GPT2Config(
    vocab_size=1003,
    hidden_size=100,
    intermediate_size=136,
    num_hidden_layers=2,
    num_attention_heads=5,
    context_window_size=256,
)
ARCHITECTURE = Architecture("gpt2", GPT2Config, GPT2LMHeadModel, weights, tiny=TINY)
