"""Granite 4 (granitemoehybrid): Granite with Mamba-2 in most layers, optional experts beside the shared MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.feed_forward import GatedMLP
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds
from model_zoo.config_check import invalid
from model_zoo.hybrid import FULL
from model_zoo.mamba2_layers import MAMBA, MAMBA_NAMES, Mamba2Config, mamba2_rules
from model_zoo.sparse_mlp import SparseMLP
from model_zoo.transformer import CausalLM, PreNormLayer, attention, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, QKV, LayerNames, renamed
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class GraniteHybridConfig(Mamba2Config, DecoderConfig):
    """position_embedding_type: "rope", or anything else for no RoPE. shared_intermediate_size: elements of the shared
    MLP. intermediate_size: elements of each of ``num_local_experts`` (0 or more) experts. Multipliers: see Granite.
    """

    model_type: ClassVar[str] = "granitemoehybrid"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"layer_types": ("layers_block_type",)}
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"normalization_function": ("rmsnorm",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"init_method", "mamba_chunk_size"})
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    position_embedding_type: str | None = None
    shared_intermediate_size: int = 1024
    num_local_experts: int | None = None
    num_experts_per_tok: int | None = None
    embedding_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        experts, chosen = self.num_local_experts or 0, self.num_experts_per_tok or 0
        if experts and not 0 < chosen <= experts:
            raise invalid("num_experts_per_tok", chosen, f"at least 1 and at most num_local_experts, {experts}")

    def default_layer_types(self) -> tuple[str, ...]:
        return (MAMBA,) * self.num_hidden_layers

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        rope = self.rope if self.position_embedding_type == "rope" else None
        return {FULL: (AttentionKind(rope=rope),), MAMBA: (self.mamba_kind,)}


def mixer(c: GraniteHybridConfig, kind: str) -> nn.Module:
    """The token mixer of a layer of this type: attention or Mamba-2."""
    if kind == MAMBA:
        return c.mamba_layer(c.rms_norm_eps)
    return attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, scale=c.attention_multiplier)


def feed_forward(c: GraniteHybridConfig) -> nn.Module:
    shared = GatedMLP(c.hidden_size, c.shared_intermediate_size)
    if not c.num_local_experts:
        return shared
    routing = nn.Routing(c.num_experts_per_tok or 0, renormalize=True)
    return SparseMLP(c.hidden_size, c.intermediate_size, c.num_local_experts, routing, shared=shared)


def model(c: GraniteHybridConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    layers = [PreNormLayer(c.hidden_size, norm, mixer(c, t), feed_forward(c), c.residual_multiplier) for t in c.types]
    scales = (c.embedding_multiplier, 1 / c.logits_scaling)
    return CausalLM(c, layers, norm(c.hidden_size), embedding_multiplier=scales[0], logit_scale=scales[1])


MIXERS: Mapping[str, LayerNames] = {MAMBA: MAMBA_NAMES, FULL: {"self_attn.qkv_proj": QKV}}
EXPERTS: LayerNames = {
    "mlp.gate": "block_sparse_moe.router.layer",
    "mlp.moe_gate_up_proj": "block_sparse_moe.input_linear",
    "mlp.moe_down_proj": "block_sparse_moe.output_linear",
}


def weights(c: GraniteHybridConfig) -> WeightMap:
    shared = "mlp.shared_experts" if c.num_local_experts else "mlp"
    mlp = {f"{shared}.gate_up_proj": "shared_mlp.input_linear", f"{shared}.down_proj": "shared_mlp.output_linear"}
    inner = {**mlp, **(EXPERTS if c.num_local_experts else {})}
    m = renamed(c, {}, LAYER, [{**MIXERS[kind], **inner} for kind in c.types])
    mamba2_rules(m, c, "self_attn", "mamba")
    return m


MAMBA_SIZES: dict[str, Any] = {"mamba_n_heads": 5, "mamba_d_state": 12, "layer_types": (MAMBA, FULL)}
TINY = GraniteHybridConfig(**tiny.SIZES, **MAMBA_SIZES, attention_multiplier=0.1, residual_multiplier=0.5)
ARCHITECTURE = Architecture(
    "granitemoehybrid", GraniteHybridConfig, model, weights, TINY, quantization=Exceptions(kept=("*.gate",))
)
