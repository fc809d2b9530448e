"""Cohere2 with experts: a mixture of experts instead of the MLP, except in the first layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.cohere import Cohere2Config
from model_zoo.config_check import check_chosen_experts, invalid
from model_zoo.layer_types import FULL, SLIDING
from model_zoo.routed import DENSE, ROUTERS_KEPT, SPARSE
from model_zoo.sparse_mlp import SparseMLP, sparse_mlp_rules
from model_zoo.transformer import CausalLM, ParallelLayer, activation_of, attention, gated_mlp, layer_norm, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class Cohere2MoeConfig(Cohere2Config):
    """first_k_dense_replace, mlp_layer_types: which layers have a dense MLP, of ``prefix_dense_intermediate_size``
    elements; ``prefix_dense_sliding_window_pattern``: period of full attention among them. expert_selection_fn: softmax
    or sigmoid. shared_expert_combination_strategy: average or sum. rms_norm_eps: if given, norms are RMS norms.
    """

    model_type: ClassVar[str] = "cohere2_moe"

    head_dim: int = 128
    rms_norm_eps: float | None = None
    num_experts: int = 8
    num_experts_per_tok: int = 2
    num_shared_experts: int | None = None
    shared_expert_combination_strategy: str = "average"
    expert_selection_fn: str = "softmax"
    norm_topk_prob: bool = True
    mlp_layer_types: Sequence[str] | None = None
    first_k_dense_replace: int | None = None
    prefix_dense_intermediate_size: int | None = None
    prefix_dense_sliding_window_pattern: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen_experts(self.num_experts_per_tok, "num_experts", self.num_experts)
        if self.expert_selection_fn not in ("softmax", "sigmoid"):
            raise invalid("expert_selection_fn", self.expert_selection_fn, "softmax or sigmoid")
        if self.shared_expert_combination_strategy not in ("average", "sum"):
            raise invalid(
                "shared_expert_combination_strategy", self.shared_expert_combination_strategy, "average or sum"
            )
        types = self.mlp_layer_types
        if types is not None and (len(types) < self.num_hidden_layers or not {DENSE, SPARSE}.issuperset(types)):
            raise invalid("mlp_layer_types", types, f"{DENSE} or {SPARSE} for each layer")

    def default_layer_types(self) -> tuple[str, ...]:
        first = self.first_k_dense_replace or 0

        def kinds(layers: int, pattern: int) -> list[str]:
            return [SLIDING if (i + 1) % pattern else FULL for i in range(layers)]

        rest = kinds(self.num_hidden_layers - first, self.sliding_window_pattern)
        return (*kinds(first, self.prefix_dense_sliding_window_pattern), *rest)

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer has experts."""
        if self.mlp_layer_types is not None:
            return self.mlp_layer_types[layer] == SPARSE
        return layer >= (self.first_k_dense_replace or 0)

    def has_rope(self, layer: int) -> bool:
        rotates_all = not self.is_sparse(layer) and self.prefix_dense_sliding_window_pattern == 1
        return rotates_all or super().has_rope(layer)

    @property
    def routing(self) -> nn.Routing:
        is_softmax = self.expert_selection_fn == "softmax"
        return nn.Routing(self.num_experts_per_tok, self.expert_selection_fn, is_softmax or self.norm_topk_prob)


class AveragedSparseMLP(SparseMLP):
    """The average of the results of the routed and the shared experts."""

    def forward(self, x_BSD: Tensor) -> Tensor:
        return super().forward(x_BSD) * 0.5


def feed_forward(c: Cohere2MoeConfig, layer: int) -> nn.Module:
    if not c.is_sparse(layer):
        return gated_mlp(c, c.hidden_act, size=c.prefix_dense_intermediate_size)
    shared = c.num_shared_experts
    averaged = shared and c.shared_expert_combination_strategy == "average"
    return (AveragedSparseMLP if averaged else SparseMLP)(
        c.hidden_size,
        c.intermediate_size,
        c.num_experts,
        c.routing,
        shared=gated_mlp(c, c.hidden_act, size=shared * c.intermediate_size) if shared else None,
        activation=activation_of(c.hidden_act),
    )


def model(c: Cohere2MoeConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps) if c.rms_norm_eps else layer_norm(c.layer_norm_eps, bias=False)

    def layer(i: int) -> nn.Module:
        attend = attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        return ParallelLayer(c.hidden_size, norm, attend, feed_forward(c, i))

    layers = [layer(i) for i in range(c.num_hidden_layers)]
    return CausalLM(c, layers, norm(c.hidden_size), logit_scale=c.logit_scale)


def weights(c: Cohere2MoeConfig) -> WeightMap:
    m = llama_names(c, gated=False)
    for i, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        if not c.is_sparse(i):
            m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.{name}" for name in GATE_UP])
            continue
        sparse_mlp_rules(m, f"{layer}.mlp", c.num_experts)
        if c.num_shared_experts:
            shared = f"{layer}.mlp.shared_experts"
            m.concat(f"{shared}.gate_up_proj", [f"{shared}.gate_proj", f"{shared}.up_proj"])
    return m


TINY = Cohere2MoeConfig(
    **tiny.SIZES,
    sliding_window=21,
    num_experts=7,
    num_experts_per_tok=3,
    num_shared_experts=1,
    first_k_dense_replace=1,
)
ARCHITECTURE = Architecture("cohere2_moe", Cohere2MoeConfig, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
