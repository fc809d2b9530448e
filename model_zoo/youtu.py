"""Youtu-LLM: Llama with DeepSeek-V3's latent attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from model_zoo import minicpm3
from model_zoo.architecture import Architecture
from model_zoo.latent import LatentConfig, latent_attention
from model_zoo.transformer import CausalLM, gated_mlp, pre_norm_model, rms_norm


@dataclass(frozen=True, kw_only=True)
class YoutuConfig(LatentConfig):
    model_type: ClassVar[str] = "youtu"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"rope_interleave": (None, True)}
    ignored: ClassVar[frozenset[str]] = frozenset({"embedding_initializer_range", "qk_head_dim"})
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    mlp_bias: bool = False


def model(c: YoutuConfig) -> CausalLM:
    norm, mlp = rms_norm(c.rms_norm_eps), partial(gated_mlp, c, c.hidden_act, c.mlp_bias)
    return pre_norm_model(c, norm, partial(latent_attention, c), mlp)


ARCHITECTURE = Architecture("youtu", YoutuConfig, model, minicpm3.weights, tiny=YoutuConfig(**minicpm3.SIZES))
