"""ModernBERT: a pre-norm encoder with RoPE, sliding windows in most layers, gated GELU, no biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_errors import MLCError
from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.encoder import EncoderConfig
from model_zoo.layer_types import FULL, SLIDING, LocalRopeConfig
from model_zoo.transformer import Encoder, PreNormLayer, Unchanged, attention, gated_mlp, layer_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(LocalRopeConfig, EncoderConfig):
    """local_attention: positions in a window, half of them on each side. global_attn_every_n_layers: period of
    full-attention layers, beginning with the first layer.
    """

    model_type: ClassVar[str] = "modernbert"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rope_theta": ("global_rope_theta",),
        "rope_local_base_freq": ("local_rope_theta",),
        "hidden_activation": ("hidden_act",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"position_embedding_type": ("absolute",)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "classifier_activation classifier_bias classifier_pooling cls_token_id decoder_bias deterministic_flash_attn "
        "initializer_cutoff_factor mlp_dropout reference_compile repad_logits_with_grad sparse_pred_ignore_index "
        "sparse_prediction compile layer_norm_eps".split()
    )
    rope_theta: float = 160000.0
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_activation: str = "gelu"
    local_attention: int = 128
    global_attn_every_n_layers: int = 3

    def __post_init__(self) -> None:
        window = self.local_attention // 2 + 1
        if self.sliding_window not in (None, window):
            raise MLCError(
                f"sliding_window: got {self.sliding_window}; expected half of local_attention and 1, {window}"
            )
        object.__setattr__(self, "sliding_window", window)
        super().__post_init__()

    def default_layer_types(self) -> tuple[str, ...]:
        return tuple(SLIDING if i % self.global_attn_every_n_layers else FULL for i in range(self.num_hidden_layers))


def model(c: ModernBertConfig) -> Encoder:
    norm = layer_norm(c.norm_eps, c.norm_bias)

    def layer() -> PreNormLayer:
        attend = attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        return PreNormLayer(c.hidden_size, norm, attend, gated_mlp(c, c.hidden_activation, c.mlp_bias))

    layers = [layer() for _ in range(c.num_hidden_layers)]
    layers[0].input_layernorm = Unchanged()
    return Encoder(c, layers, norm(c.hidden_size), embedding_norm=norm(c.hidden_size))


def weights(c: ModernBertConfig) -> WeightMap:
    outer = {
        "model.embed_tokens": "model.embeddings.tok_embeddings",
        "model.embed_norm": "model.embeddings.norm",
        "model.norm": "model.final_norm",
    }
    inner = {
        "self_attn.qkv_proj": "attn.Wqkv",
        "self_attn.o_proj": "attn.Wo",
        "mlp.gate_up_proj": "mlp.Wi",
        "mlp.down_proj": "mlp.Wo",
        "post_attention_layernorm": "mlp_norm",
    }
    m = renamed(c, outer, "model.layers.{}", inner)
    for layer in m.layers("model.layers.{}", c.num_hidden_layers):
        if not layer.endswith(".0"):
            m.rename(f"{layer}.input_layernorm", f"{layer}.attn_norm")
    m.optional_prefix("model.")
    for head in ("head.*", "decoder.*", "classifier.*"):
        m.unused(head)
    return m


TINY = ModernBertConfig(**{**tiny.SIZES, "num_key_value_heads": 4}, local_attention=20)
ARCHITECTURE = encoder_architecture(ModernBertConfig, model, weights, TINY)
