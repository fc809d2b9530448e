"""Nemotron-H and Nemotron 3: each layer is Mamba-2, attention without RoPE, an MLP with squared ReLU, or experts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.feed_forward import MLP
from mlc_errors import MLCError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds
from model_zoo.config_check import invalid
from model_zoo.hybrid import FULL, layers_of
from model_zoo.mamba2_layers import MAMBA, Mamba2Config, mamba2_rules
from model_zoo.transformer import CausalLM, MixerLayer, activation_of, attention, plain_mlp
from model_zoo.weight_expr import CheckpointTensor, Stack
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LayerNames, renamed
from quantization.rewrite import Exceptions

DENSE, EXPERTS = "mlp", "moe"
PATTERN = {"M": MAMBA, "*": FULL, "-": DENSE, "E": EXPERTS}


@dataclass(frozen=True, kw_only=True)
class NemotronHConfig(Mamba2Config, DecoderConfig):
    """hybrid_override_pattern: a letter of ``PATTERN`` for each layer, used if layer_types is missing.

    moe_latent_size: elements of the inputs and results of experts, between shared projections. time_step_min: minimum
    of dt. n_group, topk_group, norm_topk_prob, routed_scaling_factor: as in DeepSeek-V3.
    """

    model_type: ClassVar[str] = "nemotron_h"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "layer_types": ("layers_block_type",),
        "mamba_n_heads": ("mamba_num_heads",),
        "mamba_d_head": ("mamba_head_dim",),
        "mamba_n_groups": ("n_groups",),
        "mamba_d_state": ("ssm_state_size",),
        "mamba_d_conv": ("conv_kernel",),
        "mamba_conv_bias": ("use_conv_bias",),
        "time_step_min": ("mamba_dt_min",),
        "head_dim": ("attention_head_dim",),
        "rms_norm_eps": ("layer_norm_epsilon", "norm_eps"),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "mamba_hidden_act": ("silu",),
        "n_shared_experts": (1,),
        "residual_in_fp32": (True, False),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "chunk_size expand hidden_dropout mamba_chunk_size mamba_dt_init_floor mamba_dt_limit mamba_dt_max "
        "mamba_ssm_cache_dtype moe_shared_expert_overlap mtp_hybrid_override_pattern mtp_layers_block_type "
        "num_logits_to_keep num_nextn_predict_layers rescale_prenorm_residual rope_theta time_step_floor "
        "time_step_max time_step_rank use_mamba_kernels".split()
    )
    num_hidden_layers: int = 0
    hybrid_override_pattern: str | None = None
    rms_norm_eps: float = 1e-5
    mlp_bias: bool = False
    use_bias: bool = False
    mamba_d_state: int = 128
    mamba_n_groups: int = 8
    mamba_d_head: int = 64
    mamba_expand: ClassVar[int] = 0  # type: ignore[misc]  # a field of the base
    mamba_proj_bias: ClassVar[bool] = False  # type: ignore[misc]  # likewise
    time_step_min: float = 0.001
    mlp_hidden_act: str = "relu2"
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 7688
    moe_shared_expert_intermediate_size: int = 7688
    moe_latent_size: int | None = None
    n_group: int = 1
    topk_group: int = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0

    def __post_init__(self) -> None:
        self._fill("num_hidden_layers", len(self.layer_types or self.hybrid_override_pattern or ()))
        object.__setattr__(self, "time_step_limit", (self.time_step_min, math.inf))
        super().__post_init__()
        if self.num_experts_per_tok > self.n_routed_experts:
            expected = f"at most n_routed_experts, {self.n_routed_experts}"
            raise invalid("num_experts_per_tok", self.num_experts_per_tok, expected)

    def default_layer_types(self) -> tuple[str, ...]:
        pattern = self.hybrid_override_pattern or ""
        if not pattern or not set(pattern) <= set(PATTERN):
            raise MLCError(
                f"hybrid_override_pattern: got {pattern[:80]!r}; expected letters among {' '.join(PATTERN)}",
                where=["config.json"],
            )
        return tuple(PATTERN[letter] for letter in pattern)

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {MAMBA: (self.mamba_kind,), FULL: (AttentionKind(),), DENSE: (), EXPERTS: ()}

    @property
    def mamba_channels(self) -> int:
        return self.mamba_n_heads * self.mamba_d_head


class LatentExperts(nn.Module):
    """Ungated experts, optionally in a latent space, and a shared MLP: x [B, S, D] -> [B, S, D]."""

    def __init__(self, c: NemotronHConfig):
        self.activation = activation_of(c.mlp_hidden_act)
        groups = {"groups": c.n_group, "kept_groups": c.topk_group, "group_best": 2}
        self.routing = nn.Routing(c.num_experts_per_tok, "sigmoid", c.norm_topk_prob, c.routed_scaling_factor, **groups)
        self.gate = nn.Linear(c.hidden_size, c.n_routed_experts, bias=False)
        self.e_score_correction_bias = nn.Parameter((c.n_routed_experts,), keeps_dtype=True)
        latent = c.moe_latent_size
        self.fc1_latent_proj = nn.Linear(c.hidden_size, latent, bias=c.mlp_bias) if latent else None
        self.up_proj = nn.Experts(c.n_routed_experts, latent or c.hidden_size, c.moe_intermediate_size)
        self.down_proj = nn.Experts(c.n_routed_experts, c.moe_intermediate_size, latent or c.hidden_size)
        self.fc2_latent_proj = nn.Linear(latent, c.hidden_size, bias=c.mlp_bias) if latent else None
        shared = c.moe_shared_expert_intermediate_size
        self.shared_experts = MLP(c.hidden_size, shared, self.activation, c.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        choice = self.routing(self.gate(x.astype("float32")), self.e_score_correction_bias)
        latent = self.fc1_latent_proj(x) if self.fc1_latent_proj else x
        y = nn.mixture(latent, choice, self.up_proj, self.down_proj, self.activation)
        return self.shared_experts(x) + (self.fc2_latent_proj(y) if self.fc2_latent_proj else y)


def mixer(c: NemotronHConfig, kind: str) -> nn.Module:
    """The block of a layer of this type."""
    if kind == MAMBA:
        return c.mamba_layer(c.rms_norm_eps, bias=c.use_bias, out_bias=c.use_bias)
    if kind == FULL:
        return attention(c)
    return LatentExperts(c) if kind == EXPERTS else plain_mlp(c, c.mlp_hidden_act, c.mlp_bias)


def model(c: NemotronHConfig) -> CausalLM:
    layers = [MixerLayer(nn.RMSNorm(c.hidden_size, c.rms_norm_eps), mixer(c, kind)) for kind in c.types]
    return CausalLM(c, layers, nn.RMSNorm(c.hidden_size, c.rms_norm_eps))


OUTER = {"model.embed_tokens": "backbone.embeddings", "model.norm": "backbone.norm_f"}


def _names(*names: str) -> LayerNames:
    return {name: name for name in ("norm", *(f"mixer.{n}" for n in names))}


def _inner(c: NemotronHConfig, kind: str) -> LayerNames:
    if kind == MAMBA:
        return _names("in_proj", "out_proj", "norm", "dt_bias", "D")
    if kind == FULL:
        return {**_names("o_proj"), "mixer.qkv_proj": [f"mixer.{name}_proj" for name in "qkv"]}
    if kind == DENSE:
        return _names("up_proj", "down_proj")
    latent = ("fc1_latent_proj", "fc2_latent_proj") if c.moe_latent_size else ()
    correction = {"mixer.e_score_correction_bias": "mixer.gate.e_score_correction_bias"}
    return {**_names("gate", "shared_experts.up_proj", "shared_experts.down_proj", *latent), **correction}


def weights(c: NemotronHConfig) -> WeightMap:
    pattern = "backbone.layers.{}"
    m = renamed(c, OUTER, pattern, [_inner(c, kind) for kind in c.types])
    mamba2_rules(m, c, "mixer", "mixer", pattern=pattern)
    for layer, source in layers_of(m, c, {EXPERTS}, pattern):
        for name in ("up_proj", "down_proj"):
            experts = [CheckpointTensor(f"{source}.mixer.experts.{i}.{name}.weight") for i in range(c.n_routed_experts)]
            m.either(f"{layer}.mixer.{name}.weight", Stack(tuple(experts)), f"{source}.mixer.experts.{name}")
    m.unused("mtp.*")
    return m


MAMBA_SIZES: dict[str, Any] = {"mamba_n_heads": 4, "mamba_d_head": 12, "mamba_d_state": 12, "mamba_n_groups": 2}
TINY = NemotronHConfig(**{**tiny.SIZES, "num_hidden_layers": 3}, **MAMBA_SIZES, hybrid_override_pattern="M*-")
ARCHITECTURE = Architecture(
    "nemotron_h", NemotronHConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.gate",))
)
