"""Bamba: Mamba-2 in most layers; the others have attention with RoPE on half of each head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds
from model_zoo.hybrid import FULL
from model_zoo.mamba2_layers import MAMBA, MAMBA_NAMES, Mamba2Config, mamba2_rules
from model_zoo.transformer import CausalLM, PreNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, QKV, LayerNames, renamed


@dataclass(frozen=True, kw_only=True)
class BambaConfig(Mamba2Config, DecoderConfig):
    """attn_layer_indices: the layers with attention, if layer_types is missing. attn_rotary_emb: rotated elements of a
    head; overrides ``partial_rotary_factor``.
    """

    model_type: ClassVar[str] = "bamba"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"layer_types": ("layers_block_type",)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "mamba_chunk_size num_logits_to_keep use_mamba_kernels z_loss_coefficient".split()
    )
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    partial_rotary_factor: float = 0.5  # type: ignore[misc]  # a class constant of DecoderConfig
    attn_rotary_emb: int | None = None
    attn_layer_indices: Sequence[int] | None = None

    def default_layer_types(self) -> tuple[str, ...]:
        return tuple(FULL if i in (self.attn_layer_indices or ()) else MAMBA for i in range(self.num_hidden_layers))

    @property
    def rotary_dim(self) -> int:
        return self.attn_rotary_emb or super().rotary_dim

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {FULL: (AttentionKind(rope=self.rope),), MAMBA: (self.mamba_kind,)}


def mixer(c: BambaConfig, kind: str) -> nn.Module:
    """The token mixer of a layer of this type: attention or Mamba-2."""
    if kind == MAMBA:
        return c.mamba_layer(c.rms_norm_eps)
    return attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)


def model(c: BambaConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    layers = [
        PreNormLayer(c.hidden_size, norm, mixer(c, kind), gated_mlp(c, c.hidden_act, c.mlp_bias)) for kind in c.types
    ]
    return CausalLM(c, layers, norm(c.hidden_size))


OUTER = {"model.norm": "model.final_layernorm"}
NORMS: LayerNames = {"post_attention_layernorm": "pre_ff_layernorm"}
MLP: LayerNames = {
    "mlp.gate_up_proj": ("feed_forward.gate_proj", "feed_forward.up_proj"),
    "mlp.down_proj": "feed_forward.down_proj",
}
MIXERS: Mapping[str, LayerNames] = {MAMBA: MAMBA_NAMES, FULL: {"self_attn.qkv_proj": QKV}}


def weights(c: BambaConfig) -> WeightMap:
    m = renamed(c, OUTER, LAYER, [{**NORMS, **MLP, **MIXERS[kind]} for kind in c.types])
    mamba2_rules(m, c, "self_attn", "mamba")
    return m


TINY = BambaConfig(**tiny.SIZES, mamba_n_heads=5, mamba_d_state=12, layer_types=(MAMBA, FULL))
ARCHITECTURE = Architecture("bamba", BambaConfig, model, weights, tiny=TINY)
