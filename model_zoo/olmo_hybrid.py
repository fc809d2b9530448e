"""OLMo Hybrid: pre-norm layers with gated delta nets; every fourth layer is one of OLMo 2 instead.

Checkpoints have no RoPE; betas of delta nets are up to 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.delta_net import GatedDeltaNet
from model_zoo import olmo2, tiny
from model_zoo.architecture import Architecture
from model_zoo.delta_net_layers import LINEAR, DeltaNetConfig, delta_nets
from model_zoo.hybrid import FULL
from model_zoo.rope import RopeParameters
from model_zoo.transformer import CausalLM, PreNormLayer, gated_mlp, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Concat, Taps
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER, QKV, LayerNames, renamed
from quantization.rewrite import Exceptions

DELTA_NORM_EPSILON = 1e-5  # of the norms within delta nets, whatever rms_norm_eps is


@dataclass(frozen=True, kw_only=True)
class OlmoHybridConfig(DeltaNetConfig):
    """linear_*: by default, the heads of attention, keys of 3/4 of ``hidden_size`` in all heads, values of twice that.

    rope_theta: null for attention without RoPE. linear_allow_neg_eigval: beta is up to 2 instead of 1.
    """

    model_type: ClassVar[str] = "olmo_hybrid"
    hidden_act: ClassVar[str] = "silu"
    ignored: ClassVar[frozenset[str]] = frozenset(
        "linear_a_log_min linear_a_log_max linear_dt_min linear_dt_max linear_dt_init_floor".split()
    )

    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    rope_theta: float | None = 10000.0  # type: ignore[assignment]
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_allow_neg_eigval: bool = True

    def __post_init__(self) -> None:
        self._fill("linear_num_key_heads", self.num_attention_heads)
        self._fill("linear_num_value_heads", self.num_attention_heads)
        self._fill("linear_key_head_dim", int(0.75 * self.hidden_size / max(self.linear_num_key_heads, 1)))
        self._fill("linear_value_head_dim", 2 * self.linear_key_head_dim)
        super().__post_init__()

    def default_layer_types(self) -> tuple[str, ...]:
        last = self.num_hidden_layers - 1
        return tuple(FULL if i % 4 == 3 or i == last < 3 else LINEAR for i in range(self.num_hidden_layers))

    @cached_property
    def rope(self) -> RopeParameters | None:
        return None if self.rope_theta is None else super().rope


def model(c: OlmoHybridConfig) -> CausalLM:
    layers = [_delta_layer(c) if kind == LINEAR else olmo2.layer(c) for kind in c.types]
    return CausalLM(c, layers, rms_norm(c.rms_norm_eps)(c.hidden_size))


def _delta_layer(c: OlmoHybridConfig) -> nn.Module:
    max_beta = 2.0 if c.linear_allow_neg_eigval else 1.0
    mixer = GatedDeltaNet(c.hidden_size, c.delta_net, DELTA_NORM_EPSILON, max_beta=max_beta)
    return PreNormLayer(c.hidden_size, rms_norm(c.rms_norm_eps), mixer, gated_mlp(c))


DELTA_NET: LayerNames = {
    "self_attn.in_proj": [f"linear_attn.{letter}_proj" for letter in "qkvg"],
    "self_attn.in_proj_ba": [f"linear_attn.{letter}_proj" for letter in "ba"],
    "self_attn.A_log": "linear_attn.A_log",
    "self_attn.dt_bias": "linear_attn.dt_bias",
    "self_attn.norm": "linear_attn.o_norm",
    "self_attn.out_proj": "linear_attn.o_proj",
}
MIXERS: Mapping[str, LayerNames] = {LINEAR: DELTA_NET, FULL: {"self_attn.qkv_proj": QKV}}


def weights(c: OlmoHybridConfig) -> WeightMap:
    """Accept OLMo's names of norms and convolutions, and those of transformers."""
    m = renamed(c, {}, LAYER, [{**MIXERS[kind], "mlp.gate_up_proj": GATE_UP} for kind in c.types])
    for layer, kind in zip(m.layers(LAYER, c.num_hidden_layers), c.types, strict=True):
        norm = f"{layer}.post_attention_layernorm"
        m.either(norm, norm, f"{layer}.feedforward_layer_norm")
        if kind == LINEAR:
            m.either(f"{layer}.input_layernorm", f"{layer}.input_layernorm", f"{layer}.attention_layer_norm")
    for ours, theirs in delta_nets(c):
        parts = tuple(CheckpointTensor(f"{theirs}.{letter}_conv1d") for letter in "qkv")
        m.either(f"{ours}.conv1d", Taps((Concat(parts),)), Taps((CheckpointTensor(f"{theirs}.conv1d"),)))
    return m


SIZES: dict[str, Any] = {
    "layer_types": (LINEAR, FULL),
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
}
TINY = OlmoHybridConfig(**tiny.SIZES, **SIZES)
ARCHITECTURE = Architecture(
    "olmo_hybrid", OlmoHybridConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.in_proj_ba",))
)
