"""Kimi Linear: Kimi delta attention, latent attention without RoPE in some layers, and DeepSeek-V3's experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.delta_net import DeltaNetSizes, KimiDeltaNet
from mlc_errors import UnsupportedError
from model_zoo.architecture import Architecture
from model_zoo.config import LayerKinds, RecurrentKind
from model_zoo.config_check import check_values
from model_zoo.deepseek_v2 import SIZES
from model_zoo.deepseek_v3 import DeepseekV3Config
from model_zoo.delta_net_layers import LINEAR
from model_zoo.hybrid import FULL, HybridConfig, layers_of
from model_zoo.latent import latent_attention, latent_rules
from model_zoo.routed import ROUTED_KEYS, feed_forward, routed_rules
from model_zoo.sparse_mlp import MIXTRAL
from model_zoo.transformer import CausalLM, PreNormLayer, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Concat, Reshape, Taps
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, tie
from quantization.rewrite import Exceptions

DELTA_SIZES = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Keys of ``linear_attn_config`` and the fields that they set."""
DELTA_TYPES = {
    **dict.fromkeys(DELTA_SIZES, "int"),
    **dict.fromkeys(("full_attn_layers", "kda_layers"), "Sequence[int]"),
}


@dataclass(frozen=True, kw_only=True)
class KimiLinearConfig(HybridConfig, DeepseekV3Config):
    """linear_attn_config: sizes of delta nets and, without layer_types, the layers of each type, counted from 1."""

    model_type: ClassVar[str] = "kimi_linear"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ROUTED_KEYS,
        "context_window_size": ("model_max_length",),
        "num_experts_per_tok": ("num_experts_per_token",),
        "norm_topk_prob": ("moe_renormalize",),
        "n_group": ("num_expert_group",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **DeepseekV3Config.neutral,
        "mla_use_nope": (True,),
        "moe_router_activation_func": ("sigmoid",),
        "use_grouped_topk": (None, True),
    }
    rms_norm_eps: float = 1e-5
    first_k_dense_replace: int | None = 1
    linear_head_dim: int = 128
    linear_num_heads: int = 32
    linear_conv_kernel_dim: int = 4
    linear_attn_config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        given = dict(self.linear_attn_config or {})
        if unknown := sorted(given.keys() - DELTA_TYPES):
            raise UnsupportedError(
                f"linear_attn_config.{unknown[0][:80]}: kimi_linear models have no such key", where=["config.json"]
            )
        check_values(given, DELTA_TYPES)
        for key, name in DELTA_SIZES.items():
            object.__setattr__(self, name, given.get(key, getattr(self, name)))
        super().__post_init__()

    def default_layer_types(self) -> tuple[str, ...]:
        layers = range(1, self.num_hidden_layers + 1)
        full = (self.linear_attn_config or {}).get("full_attn_layers", layers[4::4])
        return tuple(FULL if i in full else LINEAR for i in layers)

    @property
    def rope(self) -> None:
        """None: latent attention has no positions."""
        return None

    @property
    def delta_net(self) -> DeltaNetSizes:
        heads, size = self.linear_num_heads, self.linear_head_dim
        return DeltaNetSizes(heads, heads, size, size, self.linear_conv_kernel_dim)

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {FULL: (self.latent_kind,), LINEAR: (RecurrentKind(self.delta_net.arrays),)}


def mixer(c: KimiLinearConfig, kind: str) -> nn.Module:
    """The token mixer of a layer of this type: latent attention or a delta net."""
    return latent_attention(c) if kind == FULL else KimiDeltaNet(c.hidden_size, c.delta_net, c.rms_norm_eps)


def model(c: KimiLinearConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    layers = [PreNormLayer(c.hidden_size, norm, mixer(c, t), feed_forward(c, i)) for i, t in enumerate(c.types)]
    return CausalLM(c, layers, norm(c.hidden_size))


def weights(c: KimiLinearConfig) -> WeightMap:
    m = WeightMap()
    for path, _ in layers_of(m, c, {FULL}, LAYER):
        latent_rules(m, c, f"{path}.self_attn")
    for path, _ in layers_of(m, c, {LINEAR}, LAYER):
        delta_rules(m, c, f"{path}.self_attn")
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.other_prefix(f"{layer}.mlp.", f"{layer}.block_sparse_moe.")
    tie(m, c, "model.embed_tokens")
    return routed_rules(m, c, experts=MIXTRAL)


def delta_rules(m: WeightMap, c: KimiLinearConfig, path: str) -> None:
    """Add the rules of the delta net at ``path``."""
    m.concat(f"{path}.in_proj", [f"{path}.{name}_proj" for name in ("q", "k", "v", "f_a", "g_a")])
    separate = tuple(CheckpointTensor(f"{path}.{letter}_conv1d.weight") for letter in "qkv")
    m.rename(f"{path}.conv1d.weight", Taps((Concat(separate),)))
    m.rename(f"{path}.A_log", Reshape((CheckpointTensor(f"{path}.A_log"),), (c.linear_num_heads, 1)))
    m.rename(f"{path}.norm", f"{path}.o_norm")
    m.rename(f"{path}.out_proj", f"{path}.o_proj")


DELTA_NET: dict[str, Any] = {"linear_num_heads": 3, "linear_head_dim": 20, "layer_types": (LINEAR, FULL)}
TINY = KimiLinearConfig(**SIZES, **DELTA_NET)
ARCHITECTURE = Architecture(
    "kimi_linear", KimiLinearConfig, model, weights, tiny=TINY, quantization=Exceptions(kept=("*.gate", "*.b_proj"))
)
