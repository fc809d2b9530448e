"""Falcon-H1: attention and Mamba-2 in parallel in every layer, with multipliers (muP) that are folded into weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.norms import GroupedRMSNorm
from mlc_compiler.nn.states import RecurrentState
from mlc_errors import MLCError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds
from model_zoo.mamba2_layers import Mamba2Config, mamba2_rules
from model_zoo.transformer import CausalLM, attention, gated_mlp, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Scaled, Slice
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, tie

BOTH = "hybrid"


@dataclass(frozen=True, kw_only=True)
class FalconH1Config(Mamba2Config, DecoderConfig):
    """mamba_d_ssm: channels of Mamba-2. ssm_multipliers: factors of the gate, x, B, C and dt. mlp_multipliers: factors
    of the gate and of the result.
    """

    model_type: ClassVar[str] = "falcon_h1"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"layer_types": ("layers_block_type",)}
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"projectors_bias": (None, False), "mamba_use_mlp": (True,)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attn_layer_indices mamba_chunk_size mlp_expansion_factor num_logits_to_keep time_step_floor time_step_max "
        "time_step_min time_step_rank".split()
    )
    rms_norm_eps: float = 1e-5
    mamba_d_ssm: int = 1024
    mamba_proj_bias: ClassVar[bool] = False  # type: ignore[misc]  # a field of the base
    mamba_rms_norm: bool = False
    mamba_norm_before_gate: bool = True
    embedding_multiplier: float = 1.0
    lm_head_multiplier: float = 1.0
    key_multiplier: float = 1.0
    attention_in_multiplier: float = 1.0
    attention_out_multiplier: float = 1.0
    ssm_in_multiplier: float = 1.0
    ssm_out_multiplier: float = 1.0
    ssm_multipliers: Sequence[float] | None = None
    mlp_multipliers: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name, count in (("ssm_multipliers", 5), ("mlp_multipliers", 2)):
            values = getattr(self, name) or (1.0,) * count
            if len(values) != count:
                raise MLCError(f"{name}: got {len(values)} numbers; expected {count}", where=["config.json"])
            object.__setattr__(self, name, tuple(values))
        super().__post_init__()

    def default_layer_types(self) -> tuple[str, ...]:
        return (BOTH,) * self.num_hidden_layers

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {BOTH: (AttentionKind(rope=self.rope), self.mamba_kind)}

    @property
    def mamba_channels(self) -> int:
        return self.mamba_d_ssm


class FalconH1Layer(nn.Module):
    def __init__(self, c: FalconH1Config):
        norm = rms_norm(c.rms_norm_eps)
        inner = GroupedRMSNorm(c.mamba_channels, c.mamba_n_groups, c.rms_norm_eps) if c.mamba_rms_norm else None
        self.self_attn = attention(c)
        self.mamba = c.mamba_layer(c.rms_norm_eps, norm=inner, norm_first=c.mamba_norm_before_gate)
        self.mlp = gated_mlp(c)
        self.input_layernorm = norm(c.hidden_size)
        self.pre_ff_layernorm = norm(c.hidden_size)

    def forward(self, x: Tensor, cache: PagedKVCache, index: int, state: RecurrentState, state_index: int) -> Tensor:
        normed = self.input_layernorm(x)
        x = x + self.mamba(normed, state, state_index) + self.self_attn(normed, cache, index)
        return x + self.mlp(self.pre_ff_layernorm(x))


def model(c: FalconH1Config) -> CausalLM:
    layers = [FalconH1Layer(c) for _ in range(c.num_hidden_layers)]
    norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
    return CausalLM(c, layers, norm, embedding_multiplier=c.embedding_multiplier, logit_scale=c.lm_head_multiplier)


def weights(c: FalconH1Config) -> WeightMap:
    m, (gate, down) = WeightMap(), c.mlp_multipliers or ()
    m.rename("model.norm", "model.final_layernorm")
    for layer in m.layers(LAYER, c.num_hidden_layers):
        into, out = c.attention_in_multiplier, c.attention_out_multiplier
        factors = {"q": into, "k": into * c.key_multiplier, "v": into}
        m.concat(
            f"{layer}.self_attn.qkv_proj.weight",
            [_scaled(f"{layer}.self_attn.{name}_proj", factor) for name, factor in factors.items()],
        )
        m.rename(f"{layer}.self_attn.o_proj.weight", _scaled(f"{layer}.self_attn.o_proj", out))
        mlp = f"{layer}.feed_forward"
        m.concat(f"{layer}.mlp.gate_up_proj.weight", [_scaled(f"{mlp}.gate_proj", gate), f"{mlp}.up_proj.weight"])
        m.rename(f"{layer}.mlp.down_proj.weight", _scaled(f"{mlp}.down_proj", down))
        m.rename(f"{layer}.mamba.in_proj.weight", Concat(tuple(_parts(c, f"{layer}.mamba.in_proj"))))
        m.rename(f"{layer}.mamba.out_proj.weight", _scaled(f"{layer}.mamba.out_proj", c.ssm_out_multiplier))
    mamba2_rules(m, c, "mamba", "mamba", {BOTH})
    tie(m, c, "model.embed_tokens")
    return m


def _parts(c: FalconH1Config, source: str) -> Iterator[Expr]:
    """The rows of the gate, x, B, C and dt, each scaled by its multiplier."""
    sizes, start = c.mamba_sizes, 0
    of_groups = sizes.groups * sizes.state_size
    counts = (sizes.inner, sizes.inner, of_groups, of_groups, sizes.heads)
    for count, multiplier in zip(counts, c.ssm_multipliers or (), strict=True):
        rows = Slice((CheckpointTensor(f"{source}.weight"),), 0, start, start + count)
        yield Scaled((rows,), multiplier * c.ssm_in_multiplier)
        start += count


def _scaled(source: str, factor: float) -> Expr:
    return Scaled((CheckpointTensor(f"{source}.weight"),), factor)


MAMBA_SIZES: dict[str, Any] = {"mamba_d_ssm": 60, "mamba_n_heads": 5, "mamba_d_state": 12, "mamba_rms_norm": True}
TINY = FalconH1Config(**tiny.SIZES, **MAMBA_SIZES, key_multiplier=0.5)
ARCHITECTURE = Architecture("falcon_h1", FalconH1Config, model, weights, tiny=TINY)
