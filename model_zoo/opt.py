"""OPT: layer norms, learned positions, biases, ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_errors import UnsupportedError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, LearnedPositions, attention, layer_norm, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import QKV, renamed

POSITION_OFFSET = 2


@dataclass(frozen=True, kw_only=True)
class OPTConfig(DecoderConfig):
    """The 350M model, a post-norm model with projected embeddings, is refused."""

    model_type: ClassVar[str] = "opt"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"intermediate_size": ("ffn_dim",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"activation_dropout", "init_std", "layerdrop", "dropout"})
    rope: ClassVar[None] = None
    max_position_embeddings: int = 0
    activation_function: str = "relu"
    enable_bias: bool = True
    do_layer_norm_before: bool = True
    layer_norm_elementwise_affine: bool = True
    word_embed_proj_dim: int = 0
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("max_position_embeddings", self.context_window_size)
        self._fill("word_embed_proj_dim", self.hidden_size)
        super().__post_init__()
        self.check_positions(self.max_position_embeddings)
        for name, expected in (
            ("do_layer_norm_before", True),
            ("layer_norm_elementwise_affine", True),
            ("word_embed_proj_dim", self.hidden_size),
        ):
            if getattr(self, name) != expected:
                raise UnsupportedError(f"{name}: got {getattr(self, name)}; expected {expected}", where=["config.json"])


def model(c: OPTConfig) -> CausalLM:
    return pre_norm_model(
        c,
        layer_norm(1e-5),
        lambda: attention(c, qkv_bias=c.enable_bias, out_bias=c.enable_bias),
        lambda: plain_mlp(c, c.activation_function, c.enable_bias),
        positions=LearnedPositions(c.max_position_embeddings, c.hidden_size, POSITION_OFFSET),
    )


def weights(c: OPTConfig) -> WeightMap:
    inner = {
        "input_layernorm": "self_attn_layer_norm",
        "self_attn.qkv_proj": QKV,
        "self_attn.o_proj": "self_attn.out_proj",
        "post_attention_layernorm": "final_layer_norm",
        "mlp.up_proj": "fc1",
        "mlp.down_proj": "fc2",
    }
    outer = {
        "model.embed_tokens": "model.decoder.embed_tokens",
        "model.embed_positions": "model.decoder.embed_positions",
        "model.norm": "model.decoder.final_layer_norm",
    }
    m = renamed(c, outer, "model.decoder.layers.{}", inner)
    m.optional_prefix("model.")
    return m


ARCHITECTURE = Architecture(
    "opt", OPTConfig, model, weights, tiny=OPTConfig(**{**tiny.SIZES, "num_key_value_heads": 4, "head_dim": 25})
)
