"""Step 3.5 Flash: sliding windows with more heads in most layers, a gate per head, experts with clamped SwiGLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from model_zoo.config import AttentionKind
from model_zoo.config_check import invalid, is_finite, unsupported
from model_zoo.layer_types import FULL, SLIDING, PartialLocalRopeConfig
from model_zoo.routed import DENSE, ROUTED_KEYS, SPARSE, RoutedConfig

DENSE_LAYERS = 3
BY_LAYER = {
    "rope_theta": ("rope_theta", "rope_local_base_freq"),
    "partial_rotary_factors": ("partial_rotary_factor", "local_partial_rotary_factor"),
}
"""Keys of lists with a number per layer -> keys of that number in full-attention layers and in layers with a window."""


@dataclass(frozen=True, kw_only=True)
class Step3p5Config(PartialLocalRopeConfig, RoutedConfig):
    """num_sliding_attention_heads: heads of layers with a window. query_pre_attn_scalar: scores are divided by its
    square root. moe_layers_enum: the layers with experts, by default all but the first three. share_expert_dim:
    elements of the shared expert. swiglu_limits, swiglu_limits_shared: ``limit`` of ``nn.gated`` in the experts of a
    layer, and in its shared expert or MLP; 0 or None for none.
    """

    model_type: ClassVar[str] = "step3p5"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ROUTED_KEYS,
        "n_routed_experts": ("moe_num_experts", *ROUTED_KEYS["n_routed_experts"]),
        "num_experts_per_tok": ("moe_top_k",),
        "num_key_value_heads": ("num_attention_groups",),
        "routed_scaling_factor": ("moe_router_scaling_factor",),
        "share_expert_dim": ("share_expert_dims",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "att_impl_type": ("GQA",),
        "moe_every_n_layer": (1,),
        "moe_layer_offset": (0,),
        "moe_router_activation": ("sigmoid",),
        "norm_expert_weight": (True,),
        "use_head_wise_attn_gate": (True,),
        "use_moe": (True,),
        "use_moe_router_bias": (True,),
        "use_qk_norm": (True,),
        "yarn_only_types": ([FULL],),
        "zero_centered": (True,),
    }
    # per_layer_config repeats num_sliding_attention_heads; mtp_*: multi-token prediction layers are not used
    ignored: ClassVar[frozenset[str]] = frozenset(
        "max_seq_len mtp_layer_types mtp_mlp_layer_types need_fp32_gate per_layer_config".split()
    )
    score: ClassVar[str] = "sigmoid"

    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    norm_topk_prob: bool = True
    sliding_window: int | None = None  # type: ignore[misc]  # a class constant of DecoderConfig
    num_sliding_attention_heads: int = 0
    query_pre_attn_scalar: float = 0.0
    moe_layers_enum: str | None = None
    share_expert_dim: int = 1280
    swiglu_limits: Sequence[float | None] | None = None
    swiglu_limits_shared: Sequence[float | None] | None = None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        values = dict(raw)
        types = values.get("layer_types")
        for key, ours in BY_LAYER.items():
            if isinstance(numbers := values.get(key), list):
                del values[key]
                values |= _by_type(key, numbers, types if isinstance(types, list) else [FULL] * len(numbers), ours)
        if isinstance(other := values.get("attention_other_setting"), Mapping):
            del values["attention_other_setting"]
            values |= _sliding_heads(values, other)
        return super().from_hf(values)

    def __post_init__(self) -> None:
        self._fill("num_sliding_attention_heads", self.num_attention_heads)
        self._fill("query_pre_attn_scalar", float(self.head_dim))
        types = self.mlp_layer_types or [SPARSE if i in self._sparse else DENSE for i in range(self.num_hidden_layers)]
        object.__setattr__(self, "mlp_layer_types", tuple(types)[: self.num_hidden_layers])
        super().__post_init__()
        for name in ("swiglu_limits", "swiglu_limits_shared"):
            limits = getattr(self, name)
            if limits is not None:
                object.__setattr__(self, name, self._limits(name, limits))

    def _limits(self, name: str, given: Any) -> tuple[float | None, ...]:
        is_list = isinstance(given, list | tuple) and len(given) >= self.num_hidden_layers
        if not is_list or not all(x is None or (is_finite(x) and x >= 0) for x in given):
            raise invalid(name, given, "a number from 0 for each layer")
        return tuple(given)[: self.num_hidden_layers]

    @property
    def _sparse(self) -> Sequence[int]:
        if self.moe_layers_enum is None:
            return range(DENSE_LAYERS, self.num_hidden_layers)
        numbers = [text.strip() for text in self.moe_layers_enum.split(",")]
        if not all(map(str.isdecimal, numbers)):
            raise invalid("moe_layers_enum", self.moe_layers_enum, "numbers of layers, separated by commas")
        return [int(text) for text in numbers]

    def limits(self, layer: int) -> tuple[float | None, float | None]:
        """The SwiGLU limits of the experts of a layer, and of its shared expert or MLP."""
        experts, shared = (given[layer] if given else None for given in (self.swiglu_limits, self.swiglu_limits_shared))
        return experts or None, shared or None

    def _kind(self, layer: int) -> AttentionKind:
        kind = super()._kind(layer)
        return replace(kind, heads=self.num_sliding_attention_heads) if kind.window else kind


def _by_type(key: str, numbers: list[Any], types: list[str], ours: tuple[str, str]) -> dict[str, Any]:
    """The number in layers of each type. Raises UnsupportedError if it differs within a type."""
    found: dict[str, Any] = {}
    for name, kind in zip(ours, (FULL, SLIDING), strict=True):
        different = {x for x, t in zip(numbers, types, strict=False) if t == kind}
        if len(different) > 1:
            raise unsupported(key, numbers, f"the same number in all layers of the type {kind}")
        found |= dict.fromkeys([name] if different else [], *different)
    return found


def _sliding_heads(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The number of heads of layers with a window. Raises UnsupportedError if other settings differ too."""
    size, groups = values.get("head_dim"), values.get("num_attention_groups")
    same = {"attention_type": SLIDING, "head_dim": size, "true_head_dim": size, "num_attention_groups": groups}
    for key, value in other.items():
        if key != "num_attention_heads" and value not in (None, same.get(key)):
            raise unsupported(f"attention_other_setting.{key}", value, str(same.get(key)))
    return {"num_sliding_attention_heads": other.get("num_attention_heads")}
