"""MiniMax-M2: sigmoid routers with a score bias, QK norms over all heads, partial RoPE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import unsupported
from model_zoo.olmoe import OlmoeConfig, model
from model_zoo.routed import ROUTERS_KEPT
from model_zoo.sparse_mlp import block_sparse_rules
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class MiniMaxM2Config(OlmoeConfig):
    """rotary_dim: rotated elements of a head; 0: determined by ``partial_rotary_factor``.

    attn_type_list: must be 1 (softmax attention) for each layer.
    """

    model_type: ClassVar[str] = "minimax_m2"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "scoring_func": ("sigmoid",),
        "use_qk_norm": (True,),
        "qk_norm_type": ("per_layer",),
        "use_routing_bias": (True,),
        "shared_intermediate_size": (None, 0),
    }
    ignored: ClassVar[frozenset[str]] = OlmoeConfig.ignored | frozenset(
        "layernorm_full_attention_beta layernorm_linear_attention_beta layernorm_mlp_beta "
        "max_model_len mlp_intermediate_size mtp_transformer_layers num_mtp_modules shared_moe_mode use_mtp".split()
    )
    score: ClassVar[str] = "sigmoid"
    corrected: ClassVar[bool] = True
    head_dim: int = 128
    rms_norm_eps: float = 1e-6
    rope_theta: float = 5e6
    norm_topk_prob: bool = True
    partial_rotary_factor: float = 1.0  # type: ignore[misc]  # a field here, a class constant of the base
    rotary_dim: int = 0  # a field here, a property of the base
    attn_type_list: Sequence[int] | None = None

    def __post_init__(self) -> None:
        self._fill("rotary_dim", int(self.head_dim * self.partial_rotary_factor))
        super().__post_init__()
        if set(self.attn_type_list or ()) - {1}:
            raise unsupported("attn_type_list", self.attn_type_list, "1 for each layer")


def weights(c: MiniMaxM2Config) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        block_sparse_rules(m, layer, c.n_routed_experts)
        correction = "e_score_correction_bias"
        m.either(f"{layer}.mlp.{correction}", f"{layer}.block_sparse_moe.{correction}", f"{layer}.mlp.{correction}")
    return m


TINY = MiniMaxM2Config(
    **tiny.SIZES, rotary_dim=12, moe_intermediate_size=136, n_routed_experts=6, num_experts_per_tok=2
)
ARCHITECTURE = Architecture("minimax_m2", MiniMaxM2Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
