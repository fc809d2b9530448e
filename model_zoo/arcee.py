"""Arcee AFM and Apertus: Llama with an ungated MLP. Arcee AFM: squared ReLU. Apertus: xIELU, and norms of queries and
keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlc_compiler.nn.feed_forward import MLP, XIELU
from mlc_errors import UnsupportedError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, plain_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names

APERTUS_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


@dataclass(frozen=True, kw_only=True)
class ArceeConfig(DecoderConfig):
    model_type: ClassVar[str] = "arcee"
    rms_norm_eps: float = 1e-5
    hidden_act: str = "relu2"
    attention_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class ApertusConfig(DecoderConfig):
    model_type: ClassVar[str] = "apertus"
    ignored: ClassVar[frozenset[str]] = frozenset({"post_norm", "qk_norm"})
    rms_norm_eps: float = 1e-5
    rope_theta: float = 12e6
    rope_scaling: Mapping[str, Any] | None = field(default_factory=lambda: dict(APERTUS_SCALING))
    hidden_act: str = "xielu"
    attention_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_act != "xielu":
            raise UnsupportedError(f"hidden_act: got {self.hidden_act!r}; expected 'xielu'", where=["config.json"])


def model(c: ArceeConfig) -> CausalLM:
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias),
        lambda: plain_mlp(c, c.hidden_act, c.mlp_bias),
    )


def apertus(c: ApertusConfig) -> CausalLM:
    norm, bias = rms_norm(c.rms_norm_eps), c.attention_bias
    return pre_norm_model(
        c,
        norm,
        lambda: attention(c, qkv_bias=bias, out_bias=bias, q_norm=norm(c.head_dim), k_norm=norm(c.head_dim)),
        lambda: MLP(c.hidden_size, c.intermediate_size, XIELU()),
    )


def weights(c: ArceeConfig) -> WeightMap:
    return llama_names(c, gated=False)


def apertus_weights(c: ApertusConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.rename(f"{layer}.input_layernorm", f"{layer}.attention_layernorm")
        m.rename(f"{layer}.post_attention_layernorm", f"{layer}.feedforward_layernorm")
        for name in ("alpha_p", "alpha_n"):
            m.rename(f"{layer}.mlp.activation.{name}", f"{layer}.mlp.act_fn.{name}")
        for constant in ("beta", "eps"):
            m.unused(f"{layer}.mlp.act_fn.{constant}")
    return m


ARCHITECTURE = Architecture("arcee", ArceeConfig, model, weights, tiny=ArceeConfig(**tiny.SIZES))
APERTUS = Architecture("apertus", ApertusConfig, apertus, apertus_weights, tiny=ApertusConfig(**tiny.SIZES))
