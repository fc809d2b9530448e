"""GPTBigCode (StarCoder, SantaCoder): GPT-2 with multi-query attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, LearnedPositions, attention, layer_norm, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, renamed


@dataclass(frozen=True, kw_only=True)
class GPTBigCodeConfig(DecoderConfig):
    """multi_query: whether all query heads share one key/value head."""

    model_type: ClassVar[str] = "gpt_bigcode"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": ("n_inner",),
        "max_position_embeddings": ("n_positions",),
        "context_window_size": ("n_positions",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner validate_runner_input "
        "pre_allocate_kv_cache max_batch_size max_sequence_length pad_key_length".split()
    )
    rope: ClassVar[None] = None
    intermediate_size: int = 0
    max_position_embeddings: int = 0
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_pytorch_tanh"
    multi_query: bool = True
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        self._fill("max_position_embeddings", self.context_window_size)
        self._fill("num_key_value_heads", 1 if self.multi_query else self.num_attention_heads)
        super().__post_init__()
        self.check_positions(self.max_position_embeddings)


def model(c: GPTBigCodeConfig) -> CausalLM:
    return pre_norm_model(
        c,
        layer_norm(c.layer_norm_epsilon),
        lambda: attention(c, qkv_bias=True, out_bias=True),
        lambda: plain_mlp(c, c.activation_function),
        positions=LearnedPositions(c.max_position_embeddings, c.hidden_size),
    )


def weights(c: GPTBigCodeConfig) -> WeightMap:
    theirs = "transformer.h.{}"
    inner = {
        "input_layernorm": "ln_1",
        "self_attn.o_proj": "attn.c_proj",
        "post_attention_layernorm": "ln_2",
        "mlp.up_proj": "mlp.c_fc",
        "mlp.down_proj": "mlp.c_proj",
    }
    outer = {
        "model.embed_tokens": "transformer.wte",
        "model.embed_positions": "transformer.wpe",
        "model.norm": "transformer.ln_f",
    }
    m = renamed(c, outer, theirs, inner)
    heads, layers = c.num_attention_heads, c.num_hidden_layers
    for ours, source in zip(m.layers(LAYER, layers), m.layers(theirs, layers), strict=True):
        view, order = ((heads + 2, c.head_dim), (0, 1)) if c.multi_query else ((heads, 3, c.head_dim), (1, 0, 2))
        m.permute(f"{ours}.self_attn.qkv_proj", f"{source}.attn.c_attn", view=view, order=order)
        m.unused(f"{source}.attn.bias")
        m.unused(f"{source}.attn.masked_bias")
    return m


TINY = GPTBigCodeConfig(**{**tiny.SIZES, "num_key_value_heads": 1})
ARCHITECTURE = Architecture("gpt_bigcode", GPTBigCodeConfig, model, weights, tiny=TINY)
