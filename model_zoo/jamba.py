"""Jamba: Mamba with norms of dt, B and C, attention without RoPE in some layers, and experts in some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.mamba import Mamba, MambaSizes
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.bamba import MLP, NORMS, OUTER
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds, RecurrentKind
from model_zoo.config_check import check_chosen_experts
from model_zoo.expert_weights import expert_rules
from model_zoo.hybrid import FULL, HybridConfig
from model_zoo.mamba import mamba_rules
from model_zoo.mamba2_layers import MAMBA
from model_zoo.sparse_mlp import QWEN, SparseMLP
from model_zoo.transformer import CausalLM, PreNormLayer, activation_of, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, QKV, LayerNames, renamed
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class JambaConfig(HybridConfig, DecoderConfig):
    """Layers with index ``attn_layer_offset`` modulo ``attn_layer_period`` have attention; likewise for experts.

    num_experts: 1 for dense MLPs. mamba_dt_rank: rank of the projection of dt; "auto": a sixteenth of the hidden
    size.
    """

    model_type: ClassVar[str] = "jamba"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "layer_types": ("layers_block_type",),
        "num_experts": ("num_local_experts",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "mamba_inner_layernorms num_logits_to_keep use_associative_scan use_mamba_kernels use_mambapy".split()
    )
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    num_experts: int = 16
    num_experts_per_tok: int = 2
    expert_layer_period: int = 2
    expert_layer_offset: int | None = 1
    attn_layer_period: int = 8
    attn_layer_offset: int | None = 4
    mamba_d_state: int = 16
    mamba_d_conv: int = 4
    mamba_expand: int = 2
    mamba_dt_rank: int | str = "auto"
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen_experts(self.num_experts_per_tok, "num_experts", self.num_experts)

    def default_layer_types(self) -> tuple[str, ...]:
        period, offset = self.attn_layer_period, self.attn_layer_offset or 0
        return tuple(FULL if i % period == offset else MAMBA for i in range(self.num_hidden_layers))

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer has experts."""
        return self.num_experts > 1 and layer % self.expert_layer_period == (self.expert_layer_offset or 0)

    @property
    def sizes(self) -> MambaSizes:
        rank = self.mamba_dt_rank if isinstance(self.mamba_dt_rank, int) else -(-self.hidden_size // 16)
        channels = self.mamba_expand * self.hidden_size
        return MambaSizes(self.hidden_size, channels, self.mamba_d_state, rank, self.mamba_d_conv)

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {FULL: (AttentionKind(),), MAMBA: (RecurrentKind(self.sizes.arrays),)}


def mixer(c: JambaConfig, kind: str) -> nn.Module:
    """The token mixer of a layer of this type: attention or Mamba."""
    if kind == FULL:
        return attention(c)
    sizes = {"dt_norm": c.sizes.rank, "b_norm": c.mamba_d_state, "c_norm": c.mamba_d_state}
    norms = {name: nn.RMSNorm(size, c.rms_norm_eps) for name, size in sizes.items()}
    return Mamba(c.sizes, bias=c.mamba_proj_bias, conv_bias=c.mamba_conv_bias, **norms)


def feed_forward(c: JambaConfig, layer: int) -> nn.Module:
    if not c.is_sparse(layer):
        return gated_mlp(c, c.hidden_act)
    routing = nn.Routing(c.num_experts_per_tok)
    activation = activation_of(c.hidden_act)
    return SparseMLP(c.hidden_size, c.intermediate_size, c.num_experts, routing, activation=activation)


def model(c: JambaConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    layers = [PreNormLayer(c.hidden_size, norm, mixer(c, t), feed_forward(c, i)) for i, t in enumerate(c.types)]
    return CausalLM(c, layers, norm(c.hidden_size))


MAMBA_PARTS = ("in_proj", "x_proj", "dt_proj", "out_proj", "D", "dt_layernorm", "b_layernorm", "c_layernorm")
MIXERS: Mapping[str, LayerNames] = {
    MAMBA: {f"self_attn.{name}": f"mamba.{name}" for name in MAMBA_PARTS},
    FULL: {"self_attn.qkv_proj": QKV},
}
ROUTER: LayerNames = {"mlp.gate": "feed_forward.router"}


def weights(c: JambaConfig) -> WeightMap:
    inner = [{**NORMS, **(ROUTER if c.is_sparse(i) else MLP), **MIXERS[kind]} for i, kind in enumerate(c.types)]
    m = renamed(c, OUTER, LAYER, inner)
    mamba_rules(m, c, "self_attn", "mamba", LAYER)
    for i, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        if c.is_sparse(i):
            up, down = (f"{layer}.mlp.moe_{name}_proj.weight" for name in ("gate_up", "down"))
            experts = f"{layer}.feed_forward.experts"
            expert_rules(m, up, down, c.num_experts, experts, f"{experts}.{{}}", QWEN)
    return m


TINY = JambaConfig(
    **tiny.SIZES, num_experts=7, num_experts_per_tok=3, attn_layer_period=2, attn_layer_offset=1, mamba_d_state=12
)
ARCHITECTURE = Architecture("jamba", JambaConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.gate",)))
