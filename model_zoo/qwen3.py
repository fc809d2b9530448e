"""Qwen3: Llama with QK norms in each head; the last layers may have a sliding window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import decoder, tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import FULL, SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(LayerTypesConfig):
    """max_window_layers: number of first layers with full attention, used if ``layer_types`` is not given."""

    model_type: ClassVar[str] = "qwen3"
    has_window_switch: ClassVar[bool] = True
    head_dim: int = 128
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    max_window_layers: int = 28

    def default_layer_types(self) -> tuple[str, ...]:
        first = self.max_window_layers if self.sliding_window else self.num_hidden_layers
        return tuple(FULL if i < first else SLIDING for i in range(self.num_hidden_layers))


def model(c: Qwen3Config, kind: type[CausalLM] = CausalLM) -> CausalLM:
    def attend() -> nn.Module:
        return attention(
            c,
            qkv_bias=c.attention_bias,
            out_bias=c.attention_bias,
            q_norm=nn.RMSNorm(c.head_dim, c.rms_norm_eps),
            k_norm=nn.RMSNorm(c.head_dim, c.rms_norm_eps),
        )

    return pre_norm_model(c, rms_norm(c.rms_norm_eps), attend, lambda: gated_mlp(c, c.hidden_act), kind=kind)


@dataclass(frozen=True, kw_only=True)
class Qwen3EmbeddingConfig(Qwen3Config):
    """Qwen3 without an output head."""

    model_type: ClassVar[str] = "qwen3-embedding"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tie_word_embeddings", True)


def weights(c: Qwen3Config) -> WeightMap:
    m = llama_names(c)
    m.optional_prefix("model.")
    return m


def weights_without_head(c: Qwen3EmbeddingConfig) -> WeightMap:
    m = weights(c)
    m.unused("lm_head.*")
    return m


TINY = Qwen3Config(**tiny.SIZES, tie_word_embeddings=True)
ARCHITECTURE = Architecture("qwen3", Qwen3Config, model, weights, tiny=TINY)
EMBEDDING = Architecture(
    "qwen3-embedding",
    Qwen3EmbeddingConfig,
    model,
    weights_without_head,
    tiny=Qwen3EmbeddingConfig(**tiny.SIZES),
    task="embedding",
    entry_points=decoder.embedding_entry_points,
    pooling="last",
)
