"""Orion: Llama with layer norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, layer_norm, pre_norm_model
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class OrionConfig(DecoderConfig):
    model_type: ClassVar[str] = "orion"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"layer_norm_eps": ("rms_norm_eps",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"max_sequence_length"})
    layer_norm_eps: float = 1e-5
    hidden_act: str = "silu"


def model(c: OrionConfig) -> CausalLM:
    return pre_norm_model(c, layer_norm(c.layer_norm_eps), lambda: attention(c), lambda: gated_mlp(c, c.hidden_act))


ARCHITECTURE = Architecture("orion", OrionConfig, model, llama_names, tiny=OrionConfig(**tiny.SIZES))
