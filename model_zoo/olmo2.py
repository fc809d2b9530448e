"""OLMo 2 and 3: norms after attention and MLP, QK norms over all heads; OLMo 3 has sliding windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler.nn.norms import WideRMSNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.layer_types import LocalRopeConfig
from model_zoo.transformer import CausalLM, PostNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class Olmo2Config(DecoderConfig):
    model_type: ClassVar[str] = "olmo2"
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class Olmo3Config(LocalRopeConfig):
    model_type: ClassVar[str] = "olmo3"
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    rope_local_base_freq: float = 500000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig

    @property
    def pattern(self) -> int | None:
        return 4


def layer(c: Any) -> PostNormLayer:
    attend = attention(
        c,
        qkv_bias=c.attention_bias,
        out_bias=c.attention_bias,
        q_norm=WideRMSNorm(c.num_attention_heads * c.head_dim, c.rms_norm_eps),
        k_norm=WideRMSNorm(c.num_key_value_heads * c.head_dim, c.rms_norm_eps),
    )
    return PostNormLayer(c.hidden_size, rms_norm(c.rms_norm_eps), attend, gated_mlp(c, c.hidden_act))


def model(c: Any) -> CausalLM:
    """Build OLMo 2 or 3."""
    return CausalLM(c, [layer(c) for _ in range(c.num_hidden_layers)], rms_norm(c.rms_norm_eps)(c.hidden_size))


ARCHITECTURE = Architecture("olmo2", Olmo2Config, model, llama_names, tiny=Olmo2Config(**tiny.SIZES))
OLMO3 = Architecture("olmo3", Olmo3Config, model, llama_names, tiny=Olmo3Config(**tiny.SIZES, sliding_window=21))
