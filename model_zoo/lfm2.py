"""LFM2: gated short convolutions, and attention with QK norms in some layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.recurrent import CausalConv, GatedConv
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig, LayerKinds, RecurrentKind
from model_zoo.hybrid import FULL, HybridConfig, conv_taps
from model_zoo.transformer import CausalLM, PreNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, QKV, LayerNames, renamed

CONV = "conv"


@dataclass(frozen=True, kw_only=True)
class Lfm2Config(HybridConfig, DecoderConfig):
    """conv_L_cache: taps of the convolutions. full_attn_idxs: the layers with attention, if layer_types is missing.

    block_ff_dim takes precedence over ``intermediate_size``. With ``block_auto_adjust_ff_dim``, the MLP has two thirds
    of it times ``block_ffn_dim_multiplier``, rounded up to a multiple of ``block_multiple_of``; then
    ``intermediate_size`` is set to the result, and the other fields are reset.
    """

    model_type: ClassVar[str] = "lfm2"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "intermediate_size": ("block_ff_dim",),
        "tie_word_embeddings": ("tie_embedding",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init "
        "conv_dim conv_dim_out conv_use_xavier_init num_heads theta use_pos_enc".split()
    )
    rope_theta: float = 1000000.0
    norm_eps: float = 1e-5
    tie_word_embeddings: bool = True
    conv_bias: bool = False
    conv_L_cache: int = 3
    block_ff_dim: int | None = None
    block_auto_adjust_ff_dim: bool = True
    block_ffn_dim_multiplier: float = 1.0
    block_multiple_of: int = 256
    full_attn_idxs: Sequence[int] | None = None

    def __post_init__(self) -> None:
        size = self.block_ff_dim or self.intermediate_size
        if self.block_auto_adjust_ff_dim:
            adjusted = int(self.block_ffn_dim_multiplier * int(2 * size / 3))
            size = -(-adjusted // self.block_multiple_of) * self.block_multiple_of
        for name, value in (("intermediate_size", size), ("block_ff_dim", None), ("block_auto_adjust_ff_dim", False)):
            object.__setattr__(self, name, value)
        super().__post_init__()

    def default_layer_types(self) -> tuple[str, ...]:
        layers = range(self.num_hidden_layers)
        full = layers if self.full_attn_idxs is None else self.full_attn_idxs
        return tuple(FULL if i in full else CONV for i in layers)

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        conv = CausalConv.array(self.hidden_size, self.conv_L_cache)
        return {FULL: (AttentionKind(rope=self.rope),), CONV: (RecurrentKind((conv,)),)}


def mixer(c: Lfm2Config, kind: str) -> nn.Module:
    """The token mixer of a layer of this type: attention or a gated convolution."""
    if kind == CONV:
        return GatedConv(c.hidden_size, c.conv_L_cache, c.conv_bias)
    norms = {name: nn.RMSNorm(c.head_dim, c.norm_eps) for name in ("q_norm", "k_norm")}
    return attention(c, **norms)


def model(c: Lfm2Config) -> CausalLM:
    norm = rms_norm(c.norm_eps)
    layers = [PreNormLayer(c.hidden_size, norm, mixer(c, kind), gated_mlp(c)) for kind in c.types]
    return CausalLM(c, layers, norm(c.hidden_size))


OUTER = {"model.norm": "model.embedding_norm"}
NORMS = {"input_layernorm": "operator_norm", "post_attention_layernorm": "ffn_norm"}
MIXERS: Mapping[str, LayerNames] = {
    CONV: {"self_attn.in_proj": "conv.in_proj", "self_attn.out_proj": "conv.out_proj"},
    FULL: {
        "self_attn.qkv_proj": QKV,
        "self_attn.o_proj": "self_attn.out_proj",
        "self_attn.q_norm": "self_attn.q_layernorm",
        "self_attn.k_norm": "self_attn.k_layernorm",
    },
}
MLP: LayerNames = {
    "mlp.gate_up_proj": ("feed_forward.w1", "feed_forward.w3"),
    "mlp.down_proj": "feed_forward.w2",
}


def lfm2_rules(c: Lfm2Config, dense: Sequence[bool]) -> WeightMap:
    """The weight map of a checkpoint, except for layers that have no dense MLP."""
    parts = [{**MIXERS[kind], **(MLP if is_dense else {})} for kind, is_dense in zip(c.types, dense, strict=True)]
    m = renamed(c, OUTER, LAYER, [{**NORMS, **part} for part in parts])
    conv_taps(m, c, {CONV}, "self_attn.conv", "conv.conv")
    return m


def weights(c: Lfm2Config) -> WeightMap:
    return lfm2_rules(c, [True] * c.num_hidden_layers)


TINY = Lfm2Config(**tiny.SIZES, layer_types=(CONV, FULL), block_multiple_of=8)
ARCHITECTURE = Architecture("lfm2", Lfm2Config, model, weights, tiny=TINY)
