"""EXAONE 3 and 3.5: Llama, with names of its own in published checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import seed_oss, tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.weight_expr import CheckpointTensor, Concat
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER, QKV, tie

PUBLISHED_LAYER = "transformer.h.{}"
NAMES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "input_layernorm": (["input_layernorm"], ["ln_1"]),
    "self_attn.qkv_proj": (QKV, [f"attn.attention.{part}_proj" for part in "qkv"]),
    "self_attn.o_proj": (["self_attn.o_proj"], ["attn.attention.out_proj"]),
    "post_attention_layernorm": (["post_attention_layernorm"], ["ln_2"]),
    "mlp.gate_up_proj": (GATE_UP, ["mlp.c_fc_0", "mlp.c_fc_1"]),
    "mlp.down_proj": (["mlp.down_proj"], ["mlp.c_proj"]),
}
"""Parts of a layer -> names in checkpoints of transformers, and in published ones."""


@dataclass(frozen=True, kw_only=True)
class ExaoneConfig(DecoderConfig):
    model_type: ClassVar[str] = "exaone"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "num_hidden_layers": ("num_layers",),
        "rms_norm_eps": ("layer_norm_epsilon",),
        "hidden_act": ("activation_function",),
    }
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def attention_out_bias(self) -> bool:
        return self.attention_bias


def weights(c: ExaoneConfig) -> WeightMap:
    m = WeightMap()
    m.either("model.embed_tokens", "model.embed_tokens", "transformer.wte")
    m.either("model.norm", "model.norm", "transformer.ln_f")
    layers = (m.layers(pattern, c.num_hidden_layers) for pattern in (LAYER, PUBLISHED_LAYER))
    for layer, published in zip(*layers, strict=True):
        for part, (ours, theirs) in NAMES.items():
            m.either(f"{layer}.{part}", _joined(layer, ours), _joined(published, theirs))
        m.unused(f"{published}.attn.*rotary*.inv_freq")
    tie(m, c, "model.embed_tokens")
    return m


def _joined(layer: str, names: Sequence[str]) -> Concat:
    return Concat(tuple(CheckpointTensor(f"{layer}.{name}") for name in names))


ARCHITECTURE = Architecture("exaone", ExaoneConfig, seed_oss.model, weights, tiny=ExaoneConfig(**tiny.SIZES))
