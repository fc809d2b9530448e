"""BLOOM and MPT: layer norms and ALiBi; BLOOM normalizes embeddings, MPT has no biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn.attention import alibi_slopes
from mlc_errors import MLCError, UnsupportedError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, layer_norm, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, renamed

# Keys of MPT's attn_config, with the supported values; ``clip_qkv`` may have any value.
MPT_ATTENTION: Mapping[str, tuple[Any, ...]] = {
    "alibi": (True,),
    "alibi_bias_max": (8, None),
    "attn_type": ("multihead_attention", None),
    "prefix_lm": (False, None),
    "qk_ln": (False, None),
    "softmax_scale": (None,),
}


@dataclass(frozen=True, kw_only=True)
class BloomConfig(DecoderConfig):
    model_type: ClassVar[str] = "bloom"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embed",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner",),
        "context_window_size": ("seq_length",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add "
        "skip_bias_add_qkv slow_but_exact".split()
    )
    rope: ClassVar[None] = None
    intermediate_size: int = 0
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class MptConfig(DecoderConfig):
    """clip_qkv: queries, keys and values are clamped to [-clip_qkv, clip_qkv]."""

    model_type: ClassVar[str] = "mpt"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("d_model",),
        "num_hidden_layers": ("n_layers",),
        "num_attention_heads": ("n_heads",),
        "context_window_size": ("max_seq_len",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attn_config embedding_fraction init_config init_device learned_pos_emb norm_type "
        "tokenizer_name verbose".split()
    )
    rope: ClassVar[None] = None
    intermediate_size: int = 0
    expansion_ratio: int = 4
    layer_norm_epsilon: float = 1e-5
    no_bias: bool = True
    clip_qkv: float | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", self.expansion_ratio * self.hidden_size)
        super().__post_init__()
        if not self.no_bias:
            raise UnsupportedError("no_bias: got false; expected true", where=["config.json"])

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        nested = raw.get("attn_config") or {}
        if not isinstance(nested, Mapping):
            raise MLCError("attn_config: expected an object", where=["config.json"])
        for key, allowed in MPT_ATTENTION.items():
            if key in nested and nested[key] not in allowed:
                raise UnsupportedError(
                    f"attn_config.{key}: got {str(nested[key])[:80]}; expected {allowed[0]!r}", where=["config.json"]
                )
        inner = {"clip_qkv": nested["clip_qkv"]} if nested.get("clip_qkv") is not None else {}
        return super().from_hf({**raw, **inner})


def model(c: BloomConfig) -> CausalLM:
    norm = layer_norm(c.layer_norm_epsilon)
    return pre_norm_model(
        c,
        norm,
        lambda: attention(c, qkv_bias=True, out_bias=True, slopes=alibi_slopes(c.num_attention_heads)),
        lambda: plain_mlp(c, "gelu_pytorch_tanh"),
        embedding_norm=norm(c.hidden_size),
    )


def mpt(c: MptConfig) -> CausalLM:
    def attend() -> nn.Module:
        return attention(c, clip=c.clip_qkv, slopes=alibi_slopes(c.num_attention_heads))

    norm = layer_norm(c.layer_norm_epsilon, bias=False)
    return pre_norm_model(c, norm, attend, lambda: plain_mlp(c, "gelu", bias=False))


def weights(c: BloomConfig) -> WeightMap:
    """Rows of ``query_key_value`` are ordered by head; each has its query, key and value."""
    inner = {
        "input_layernorm": "input_layernorm",
        "self_attn.o_proj": "self_attention.dense",
        "post_attention_layernorm": "post_attention_layernorm",
        "mlp.up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
    }
    outer = {
        "model.embed_tokens": "transformer.word_embeddings",
        "model.embed_norm": "transformer.word_embeddings_layernorm",
        "model.norm": "transformer.ln_f",
    }
    m = renamed(c, outer, "transformer.h.{}", inner)
    m.optional_prefix("transformer.")
    for i in range(c.num_hidden_layers):
        source = f"transformer.h.{i}.self_attention.query_key_value"
        view = (c.num_attention_heads, 3, c.head_dim)
        m.permute(f"{LAYER.format(i)}.self_attn.qkv_proj", source, view=view, order=(1, 0, 2))
    return m


def mpt_weights(c: MptConfig) -> WeightMap:
    inner = {
        "input_layernorm": "norm_1",
        "self_attn.qkv_proj": "attn.Wqkv",
        "self_attn.o_proj": "attn.out_proj",
        "post_attention_layernorm": "norm_2",
        "mlp.up_proj": "ffn.up_proj",
        "mlp.down_proj": "ffn.down_proj",
    }
    outer = {"model.embed_tokens": "transformer.wte", "model.norm": "transformer.norm_f"}
    return renamed(c, outer, "transformer.blocks.{}", inner)


SIZES = {**tiny.SIZES, "num_key_value_heads": 4}
ARCHITECTURE = Architecture("bloom", BloomConfig, model, weights, tiny=BloomConfig(**SIZES))
MPT = Architecture("mpt", MptConfig, mpt, mpt_weights, tiny=MptConfig(**SIZES, clip_qkv=2.0))
