"""Mamba-2: pre-norm state space (SSD) layers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import LayerKinds
from model_zoo.mamba2_layers import MAMBA, Mamba2Config, mamba2_rules
from model_zoo.transformer import CausalLM, MixerLayer
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed

TRAINING = frozenset(
    "chunk_size d_inner d_model fused_add_norm n_layer pad_vocab_size_multiple rescale_prenorm_residual rms_norm "
    "ssm_cfg time_step_floor time_step_init_scheme time_step_max time_step_min time_step_rank time_step_scale "
    "use_associative_scan use_mambapy".split()
)
"""Keys that only affect training, choose between equivalent computations, or repeat others."""
OUTER = {"model.embed_tokens": "backbone.embeddings", "model.norm": "backbone.norm_f"}
PATTERN = "backbone.layers.{}"


@dataclass(frozen=True, kw_only=True)
class Mamba2ModelConfig(Mamba2Config):
    model_type: ClassVar[str] = "mamba2"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mamba_n_heads": ("num_heads",),
        "mamba_d_head": ("head_dim",),
        "mamba_n_groups": ("n_groups",),
        "mamba_d_state": ("state_size",),
        "mamba_d_conv": ("conv_kernel",),
        "mamba_expand": ("expand",),
        "mamba_conv_bias": ("use_conv_bias",),
        "mamba_proj_bias": ("use_bias",),
        "rms_norm_eps": ("layer_norm_epsilon",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"residual_in_fp32": (True, False)}
    ignored: ClassVar[frozenset[str]] = TRAINING
    rms_norm_eps: float = 1e-5
    mamba_d_state: int = 128
    mamba_n_groups: int = 8

    def default_layer_types(self) -> tuple[str, ...]:
        return (MAMBA,) * self.num_hidden_layers

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {MAMBA: (self.mamba_kind,)}


def model(c: Mamba2ModelConfig) -> CausalLM:
    layers = [
        MixerLayer(nn.RMSNorm(c.hidden_size, c.rms_norm_eps), c.mamba_layer(c.rms_norm_eps))
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, layers, nn.RMSNorm(c.hidden_size, c.rms_norm_eps))


def weights(c: Mamba2ModelConfig) -> WeightMap:
    names = ("norm", *(f"mixer.{name}" for name in ("in_proj", "out_proj", "norm", "dt_bias", "D")))
    m = renamed(c, OUTER, PATTERN, {name: name for name in names})
    mamba2_rules(m, c, "mixer", "mixer", pattern=PATTERN)
    return m


MAMBA_SIZES: dict[str, Any] = {"mamba_n_heads": 5, "mamba_d_state": 12, "mamba_n_groups": 1}
COMMON = {key: size for key, size in tiny.SIZES.items() if key in Mamba2ModelConfig.__dataclass_fields__}
TINY = Mamba2ModelConfig(**COMMON, **MAMBA_SIZES)
ARCHITECTURE = Architecture("mamba2", Mamba2ModelConfig, model, weights, tiny=TINY)
