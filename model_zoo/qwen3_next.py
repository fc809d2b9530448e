"""Qwen3-Next: gated delta nets, gated attention in every fourth layer, routed experts and a shared expert.

Norms are stored as ``w - 1``, but for those of the delta nets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.delta_net import DeltaNetSizes, GatedDeltaNet
from model_zoo import mtp, tiny
from model_zoo.architecture import Architecture
from model_zoo.config_check import check_chosen_experts
from model_zoo.delta_net_layers import LINEAR, DeltaNetConfig, delta_nets
from model_zoo.hybrid import FULL
from model_zoo.sparse_mlp import SharedSparseMLP, shared_sparse_mlp_rules
from model_zoo.transformer import CausalLM, PreNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Permute, Ranges, Slice
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, tie
from quantization.rewrite import Exceptions

EXCEPTIONS = Exceptions(kept=("*gate", "*.in_proj_ba"))


@dataclass(frozen=True, kw_only=True)
class QwenDeltaNetConfig(DeltaNetConfig):
    """full_attention_interval: period of FULL layers, used if layer_types is missing.

    num_experts: 0 or None for a dense MLP.
    """

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"attn_output_gate": (True,)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "mamba_ssm_dtype mtp_num_hidden_layers mtp_use_dedicated_embeddings".split()
    )

    intermediate_size: int = 5120
    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    attention_bias: bool = False
    partial_rotary_factor: float = 0.25  # type: ignore[misc]  # a class constant of DecoderConfig
    full_attention_interval: int = 4
    linear_num_key_heads: int = 16
    linear_num_value_heads: int = 32
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    num_experts: int | None = None
    num_experts_per_tok: int = 10
    moe_intermediate_size: int = 512
    shared_expert_intermediate_size: int = 512
    norm_topk_prob: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_experts:
            check_chosen_experts(self.num_experts_per_tok, "num_experts", self.num_experts)

    def default_layer_types(self) -> tuple[str, ...]:
        period = self.full_attention_interval
        return tuple(LINEAR if (i + 1) % period else FULL for i in range(self.num_hidden_layers))


@dataclass(frozen=True, kw_only=True)
class Qwen3NextConfig(QwenDeltaNetConfig):
    model_type: ClassVar[str] = "qwen3_next"
    num_experts: int | None = 512


def model(c: QwenDeltaNetConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    layers = [PreNormLayer(c.hidden_size, norm, _mixer(c, kind), _mlp(c)) for kind in c.types]
    return CausalLM(c, layers, norm(c.hidden_size))


def _mixer(c: QwenDeltaNetConfig, kind: str) -> nn.Module:
    if kind == LINEAR:
        return GatedDeltaNet(c.hidden_size, c.delta_net, c.rms_norm_eps)
    norms = {name: nn.RMSNorm(c.head_dim, c.rms_norm_eps) for name in ("q_norm", "k_norm")}
    return attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, output_gate=True, **norms)


def _mlp(c: QwenDeltaNetConfig) -> nn.Module:
    if not c.num_experts:
        return gated_mlp(c, c.hidden_act)
    routing = nn.Routing(c.num_experts_per_tok, renormalize=c.norm_topk_prob)
    return SharedSparseMLP(
        c.hidden_size, c.moe_intermediate_size, c.num_experts, routing, c.shared_expert_intermediate_size
    )


def weights(c: QwenDeltaNetConfig) -> WeightMap:
    m = common_weights(c)
    for ours, theirs in delta_nets(c):
        sizes = c.delta_net
        m.rename(f"{ours}.in_proj", Ranges((CheckpointTensor(f"{theirs}.in_proj_qkvz"),), _by_kind(sizes)))
        view = (sizes.key_heads, 2, sizes.heads // sizes.key_heads)
        m.permute(f"{ours}.in_proj_ba", f"{theirs}.in_proj_ba", view=view, order=(1, 0, 2))
    return m


def _by_kind(sizes: DeltaNetSizes) -> tuple[tuple[int, int], ...]:
    """Row ranges of queries, keys, values and gates, in rows that are grouped by key head."""
    value = sizes.values // sizes.key_heads
    ends = [sizes.key_size, 2 * sizes.key_size, 2 * sizes.key_size + value, 2 * sizes.key_size + 2 * value]
    starts = range(0, sizes.key_heads * ends[-1], ends[-1])
    return tuple((s + begin, s + end) for begin, end in zip([0, *ends], ends, strict=False) for s in starts)


def common_weights(c: QwenDeltaNetConfig) -> WeightMap:
    """All rules except those of the input projections of delta nets."""
    m = WeightMap()
    recurrent = delta_nets(c)
    for ours, theirs in recurrent:
        m.taps(f"{ours}.conv1d", f"{theirs}.conv1d")
        for name in ("A_log", "dt_bias", "norm", "out_proj"):
            m.rename(f"{ours}.{name}", f"{theirs}.{name}")
    for layer in m.layers(LAYER, c.num_hidden_layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            m.offset(f"{layer}.{norm}.weight", 1.0)
        if f"{layer}.self_attn" not in dict(recurrent):
            _attention_rules(m, c, f"{layer}.self_attn")
        if c.num_experts:
            shared_sparse_mlp_rules(m, f"{layer}.mlp", c.num_experts, c.hidden_size)
        else:
            m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.mlp.gate_proj", f"{layer}.mlp.up_proj"])
    m.offset("model.norm.weight", 1.0)
    m.unused("mtp.*")
    tie(m, c, "model.embed_tokens")
    return m


def _attention_rules(m: WeightMap, c: QwenDeltaNetConfig, path: str) -> None:
    """Add the rules of gated attention; ``q_proj`` has the rows of queries, then of the gate, for each head."""
    rows = c.num_attention_heads * c.head_dim
    by_kind = Permute((CheckpointTensor(f"{path}.q_proj"),), (c.num_attention_heads, 2, c.head_dim), (1, 0, 2))
    queries, gates = Slice((by_kind,), 0, 0, rows), Slice((by_kind,), 0, rows, 2 * rows)
    m.concat(f"{path}.qkv_proj", [queries, f"{path}.k_proj", f"{path}.v_proj"])
    m.rename(f"{path}.gate_proj", gates)
    for norm in ("q_norm", "k_norm"):
        m.offset(f"{path}.{norm}.weight", 1.0)


SIZES: dict[str, Any] = {
    **tiny.SIZES,
    "layer_types": (LINEAR, FULL),
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "shared_expert_intermediate_size": 72,
}
TINY = Qwen3NextConfig(**SIZES, **EXPERTS)
ARCHITECTURE = Architecture("qwen3_next", Qwen3NextConfig, model, weights, tiny=TINY, quantization=EXCEPTIONS)
MTP = mtp.head(ARCHITECTURE, mtp.QWEN)
