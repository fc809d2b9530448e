"""Models with DeepSeek's mixtures of experts: configuration keys, layers, and weight map rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.feed_forward import GatedMLP
from model_zoo.config import DecoderConfig
from model_zoo.config_check import invalid
from model_zoo.sparse_mlp import QWEN, SparseMLP, sparse_mlp_rules
from model_zoo.transformer import CausalLM, Norm, PreNormLayer, activation_of, gated_mlp, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Reshape
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER
from quantization.rewrite import Exceptions

ROUTED_KEYS: Mapping[str, tuple[str, ...]] = {
    "n_routed_experts": ("num_local_experts", "num_experts"),
    "n_shared_experts": ("num_shared_experts",),
    "num_nextn_predict_layers": ("num_mtp_layers",),
}
TRAINING = frozenset("aux_loss_alpha ep_size moe_router_load_balancing_type seq_aux".split())
"""Keys that matter in training only."""
ROUTERS_KEPT = Exceptions(kept=("*.gate",))
DENSE, SPARSE = "dense", "sparse"
CORRECTION = "e_score_correction_bias"


@dataclass(frozen=True, kw_only=True)
class RoutedConfig(DecoderConfig):
    """Each token uses ``num_experts_per_tok`` of ``n_routed_experts`` experts of a layer, and ``n_shared_experts``
    shared experts. Each has ``moe_intermediate_size`` elements.

    Every ``moe_layer_freq``-th layer from ``first_k_dense_replace`` on has experts, or those that are sparse in
    ``mlp_layer_types``; other layers have an MLP of ``intermediate_size`` elements. norm_topk_prob,
    routed_scaling_factor, n_group, topk_group: fields of ``nn.Routing``. num_nextn_predict_layers: multi-token
    prediction (MTP) layers after the last layer, which are not used.

    Class variables of a subclass: ``score`` and ``group_best``, fields of ``nn.Routing``; ``corrected``, see
    ``SparseMLP``; ``mlp_bias``, whether MLPs and shared experts have biases.
    """

    names: ClassVar[Mapping[str, tuple[str, ...]]] = ROUTED_KEYS
    ignored: ClassVar[frozenset[str]] = TRAINING
    score: ClassVar[str] = "softmax"
    group_best: ClassVar[int] = 1
    corrected: ClassVar[bool] = False

    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int | None = None
    first_k_dense_replace: int | None = None
    moe_layer_freq: int = 1
    mlp_layer_types: Sequence[str] | None = None
    norm_topk_prob: bool = False
    routed_scaling_factor: float = 1.0
    n_group: int | None = None
    topk_group: int | None = None
    num_nextn_predict_layers: int | None = None
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"

    def __post_init__(self) -> None:
        super().__post_init__()
        groups, kept = self.n_group or 1, self.topk_group or 1
        if self.num_experts_per_tok > self.n_routed_experts:
            expected = f"at most n_routed_experts, {self.n_routed_experts}"
            raise invalid("num_experts_per_tok", self.num_experts_per_tok, expected)
        if self.n_routed_experts % groups or kept > groups:
            expected = f"a divisor of n_routed_experts, {self.n_routed_experts}, and at least topk_group, {kept}"
            raise invalid("n_group", groups, expected)
        types = self.mlp_layer_types
        if types is not None and (len(types) < self.num_hidden_layers or not {DENSE, SPARSE}.issuperset(types)):
            raise invalid("mlp_layer_types", types, f"{DENSE} or {SPARSE} for each layer")

    @property
    def mlp_bias(self) -> bool:
        return False

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer has experts."""
        if self.mlp_layer_types is not None:
            return self.mlp_layer_types[layer] == SPARSE
        return layer >= (self.first_k_dense_replace or 0) and layer % self.moe_layer_freq == 0

    @property
    def routing(self) -> nn.Routing:
        return nn.Routing(
            self.num_experts_per_tok,
            self.score,
            self.norm_topk_prob,
            self.routed_scaling_factor,
            groups=self.n_group or 1,
            kept_groups=self.topk_group or 1,
            group_best=self.group_best,
        )


def feed_forward(c: RoutedConfig, layer: int) -> nn.Module:
    """The mixture of experts of a layer, or its MLP."""
    if not c.is_sparse(layer):
        return gated_mlp(c, c.hidden_act, c.mlp_bias)
    activation, width = activation_of(c.hidden_act), (c.n_shared_experts or 0) * c.moe_intermediate_size
    return SparseMLP(
        c.hidden_size,
        c.moe_intermediate_size,
        c.n_routed_experts,
        c.routing,
        corrected=c.corrected,
        float32_router=True,
        shared=GatedMLP(c.hidden_size, width, activation, c.mlp_bias) if width else None,
        activation=activation,
    )


def routed_model(
    c: RoutedConfig,
    attention: Callable[[], nn.Module],
    norm: Norm | None = None,
    *,
    multiplier: float = 1.0,
    **options: Any,
) -> CausalLM:
    """A pre-norm decoder with experts. norm: RMS norms by default.

    multiplier: see ``PreNormLayer``; options: see ``CausalLM``.
    """
    norm = norm or rms_norm(c.rms_norm_eps)

    def layer(index: int) -> nn.Module:
        return PreNormLayer(c.hidden_size, norm, attention(), feed_forward(c, index), multiplier)

    return CausalLM(c, [layer(i) for i in range(c.num_hidden_layers)], norm(c.hidden_size), **options)


def routed_rules(
    m: WeightMap,
    c: RoutedConfig,
    *,
    router: str = "gate",
    correction: str = CORRECTION,
    shared: str = "shared_experts",
    experts: tuple[str, str, str] = QWEN,
) -> WeightMap:
    """Add the rules of MLPs and experts to a weight map, and return it.

    router, correction, shared: the checkpoint's names in a layer's ``mlp``; experts: those in an expert.
    """
    for i, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        mlp = f"{layer}.mlp"
        if not c.is_sparse(i):
            m.concat(f"{mlp}.gate_up_proj", [f"{layer}.{name}" for name in GATE_UP])
            continue
        sparse_mlp_rules(m, mlp, c.n_routed_experts, experts)
        m.rename(f"{mlp}.gate", f"{mlp}.{router}")
        if c.corrected:
            correction_rule(m, mlp, c.n_routed_experts, correction)
        if c.n_shared_experts:
            m.concat(f"{mlp}.shared_experts.gate_up_proj", [f"{mlp}.{shared}.{part}_proj" for part in ("gate", "up")])
            m.rename(f"{mlp}.shared_experts.down_proj", f"{mlp}.{shared}.down_proj")
    for i in range(c.num_nextn_predict_layers or 0):
        m.unused(f"{LAYER.format(c.num_hidden_layers + i)}.*")
    return m


def correction_rule(m: WeightMap, mlp: str, experts: int, name: str = CORRECTION) -> None:
    """Add the rule of the score correction bias: in the router, in ``mlp``, or ERNIE's of shape [1, experts]."""
    of_ernie = Reshape((CheckpointTensor(f"{mlp}.moe_statics.{CORRECTION}"),), (experts,))
    m.either(f"{mlp}.{CORRECTION}", f"{mlp}.gate.{CORRECTION}", f"{mlp}.{name}", of_ernie)
