"""MiMo-V2-Flash: sliding windows with learned sinks in five of six layers, short values, DeepSeek-V3's experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from model_zoo import mtp, tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind
from model_zoo.config_check import invalid, is_list_of, unsupported
from model_zoo.deepseek_v2 import EXPERTS
from model_zoo.deepseek_v3 import ROUTER, SigmoidConfig
from model_zoo.layer_types import FULL, SLIDING, PartialLocalRopeConfig
from model_zoo.routed import DENSE, ROUTERS_KEPT, SPARSE, TRAINING, feed_forward, routed_rules
from model_zoo.transformer import CausalLM, PreNormLayer, attention, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Scaled
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, QKV, tie

PATTERN = 6
TYPES = {
    "hybrid_layer_pattern": ("layer_types", (FULL, SLIDING)),
    "moe_layer_freq": ("mlp_layer_types", (DENSE, SPARSE)),
}
"""Keys of published files with a 0 or 1 for each layer -> the key and the names of transformers for them."""


@dataclass(frozen=True, kw_only=True)
class MiMoV2FlashConfig(PartialLocalRopeConfig, SigmoidConfig):
    """attention_value_scale: factor of values. swa_num_key_value_heads: key/value heads of layers with a window, by
    default twice those of the others. swa_num_attention_heads, swa_head_dim, swa_v_head_dim: must equal the others'.
    """

    model_type: ClassVar[str] = "mimo_v2_flash"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **SigmoidConfig.names,
        "rms_norm_eps": ("layernorm_epsilon",),
        "rope_local_base_freq": ("swa_rope_theta",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **ROUTER,
        "add_full_attention_sink_bias": (False,),
        "add_swa_attention_sink_bias": (True,),
    }
    ignored: ClassVar[frozenset[str]] = TRAINING | {"attention_chunk_size", "moe_router_dtype"}

    head_dim: int = 192
    v_head_dim: int = 128
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    attention_value_scale: float | None = 0.707
    sliding_window: int | None = 129  # type: ignore[misc]  # a class constant of DecoderConfig
    rope_theta: float = 5e6
    partial_rotary_factor: float = 0.334  # type: ignore[misc]  # as in the base
    local_partial_rotary_factor: float = 0.334
    swa_num_key_value_heads: int = 0
    swa_num_attention_heads: int | None = None
    swa_head_dim: int | None = None
    swa_v_head_dim: int | None = None
    first_k_dense_replace: int | None = 1

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        values = dict(raw)
        for key, (ours, names) in TYPES.items():
            if isinstance(flags := values.get(key), list):
                if not is_list_of(int, flags) or not {0, 1}.issuperset(flags):
                    raise invalid(key, flags, "a list of 0 and 1")
                values[ours] = [names[flag] for flag in flags]
                del values[key]
        if isinstance(before := values.get("sliding_window_size"), int) and before > 0:
            values["sliding_window"] = before + 1  # the positions before a token, and its own position
        if "partial_rotary_factor" in values:
            values.setdefault("local_partial_rotary_factor", values["partial_rotary_factor"])
        return super().from_hf(values)

    def __post_init__(self) -> None:
        self._fill("swa_num_key_value_heads", 2 * self.num_key_value_heads)
        super().__post_init__()
        for name in ("num_attention_heads", "head_dim", "v_head_dim"):
            value, full = getattr(self, f"swa_{name}"), getattr(self, name)
            if value not in (None, full):
                raise unsupported(f"swa_{name}", value, f"{name}, {full}")
        if self.sliding_window is None and SLIDING in (self.layer_types or ()):
            raise invalid("sliding_window", None, "a number of positions")

    def default_layer_types(self) -> tuple[str, ...]:
        layers = range(self.num_hidden_layers)
        return tuple(SLIDING if i and (i + 1) % PATTERN else FULL for i in layers)

    def _kind(self, layer: int) -> AttentionKind:
        kind = super()._kind(layer)
        return replace(kind, kv_heads=self.swa_num_key_value_heads if kind.window else None, value_dim=self.v_head_dim)


def model(c: MiMoV2FlashConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)

    def layer(i: int, kind: AttentionKind) -> nn.Module:
        attend = attention(c, kind, qkv_bias=c.attention_bias, sinks=kind.window is not None)
        return PreNormLayer(c.hidden_size, norm, attend, feed_forward(c, i))

    return CausalLM(c, [layer(i, kind) for i, kind in enumerate(c.attention_kinds)], norm(c.hidden_size))


def weights(c: MiMoV2FlashConfig) -> WeightMap:
    m = WeightMap()
    for layer, kind in zip(m.layers(LAYER, c.num_hidden_layers), c.attention_kinds, strict=True):
        q, k, v = (CheckpointTensor(f"{layer}.{name}") for name in QKV)
        m.concat(f"{layer}.self_attn.qkv_proj", [q, k, Scaled((v,), c.attention_value_scale or 1.0)])
        if kind.window:
            sinks = f"{layer}.self_attn.sinks"
            m.either(sinks, f"{layer}.self_attn.attention_sink_bias", sinks)
    m.unused("model.mtp.*")
    tie(m, c, "model.embed_tokens")
    return routed_rules(m, c)


TINY = MiMoV2FlashConfig(**tiny.SIZES, **EXPERTS, v_head_dim=12, sliding_window=21)
ARCHITECTURE = Architecture("mimo_v2_flash", MiMoV2FlashConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
MTP = mtp.head(ARCHITECTURE, mtp.MIMO_V2)
