"""Llama under other names: Helium (interleaved RoPE), InternLM3, IQuest-Coder."""

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
class HeliumConfig(DecoderConfig):
    model_type: ClassVar[str] = "helium"
    interleaved_rotary: ClassVar[bool] = True
    head_dim: int = 128
    rms_norm_eps: float = 1e-8
    rope_theta: float = 100000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def out_bias(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class InternLM3Config(DecoderConfig):
    model_type: ClassVar[str] = "internlm3"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"attention_bias": ("qkv_bias",), "mlp_bias": ("bias",)}
    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def out_bias(self) -> bool:
        return self.attention_bias


@dataclass(frozen=True, kw_only=True)
class IQuestCoderConfig(InternLM3Config):
    model_type: ClassVar[str] = "iquestcoder"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {}


def model(c: Any) -> CausalLM:
    """Build the model from any of the configurations in this file."""
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.out_bias),
        lambda: gated_mlp(c, c.hidden_act, c.mlp_bias),
    )


ARCHITECTURE = Architecture("helium", HeliumConfig, model, llama_names, tiny=HeliumConfig(**tiny.SIZES))
INTERNLM3 = Architecture("internlm3", InternLM3Config, model, llama_names, tiny=InternLM3Config(**tiny.SIZES))
IQUESTCODER = Architecture("iquestcoder", IQuestCoderConfig, model, llama_names, tiny=IQuestCoderConfig(**tiny.SIZES))
