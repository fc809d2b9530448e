"""Seed-OSS and ERNIE 4.5: Llama with biases; ERNIE has interleaved RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class SeedOssConfig(DecoderConfig):
    model_type: ClassVar[str] = "seed_oss"
    head_dim: int = 128
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = True
    attention_out_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class Ernie4_5Config(DecoderConfig):
    """use_bias: whether the linear layers of attention and MLP have biases."""

    model_type: ClassVar[str] = "ernie4_5"
    interleaved_rotary: ClassVar[bool] = True
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"attention_bias": ("use_bias",)}
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"compression_ratio": (1.0,), "use_rmsnorm": (True,)}
    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    tie_word_embeddings: bool = True

    @property
    def attention_out_bias(self) -> bool:
        return self.attention_bias

    @property
    def mlp_bias(self) -> bool:
        return self.attention_bias


def model(c: Any) -> CausalLM:
    """Build the model. c: a SeedOssConfig or Ernie4_5Config."""
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_out_bias),
        lambda: gated_mlp(c, c.hidden_act, c.mlp_bias),
    )


ARCHITECTURE = Architecture("seed_oss", SeedOssConfig, model, llama_names, tiny=SeedOssConfig(**tiny.SIZES))
ERNIE4_5 = Architecture("ernie4_5", Ernie4_5Config, model, llama_names, tiny=Ernie4_5Config(**tiny.SIZES))
