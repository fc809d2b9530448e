"""The model of Step 3.5 Flash."""

from __future__ import annotations

import math

from mlc_compiler import nn
from mlc_compiler.nn.feed_forward import GatedMLP
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind
from model_zoo.deepseek_v2 import EXPERTS
from model_zoo.layer_types import FULL, SLIDING
from model_zoo.routed import CORRECTION, ROUTERS_KEPT
from model_zoo.sparse_mlp import SparseMLP
from model_zoo.step3p5_config import Step3p5Config
from model_zoo.transformer import CausalLM, PreNormLayer, activation_of, attention, rms_norm
from model_zoo.weight_expr import CheckpointTensor, Concat
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import GATE_UP, LAYER, llama_names, one_plus

NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")


def _feed_forward(c: Step3p5Config, layer: int) -> nn.Module:
    activation, (limit, shared) = activation_of(c.hidden_act), c.limits(layer)
    if not c.is_sparse(layer):
        return GatedMLP(c.hidden_size, c.intermediate_size, activation, limit=shared)
    return SparseMLP(
        c.hidden_size,
        c.moe_intermediate_size,
        c.n_routed_experts,
        c.routing,
        corrected=True,
        float32_router=True,
        shared=GatedMLP(c.hidden_size, c.share_expert_dim, activation, limit=shared),
        activation=activation,
        limit=limit,
    )


def model(c: Step3p5Config) -> CausalLM:
    norm, scale = rms_norm(c.rms_norm_eps), 1 / math.sqrt(c.query_pre_attn_scalar)

    def layer(i: int, kind: AttentionKind) -> nn.Module:
        biases = {"qkv_bias": c.attention_bias, "out_bias": c.attention_bias}
        norms = {"q_norm": norm(c.head_dim), "k_norm": norm(c.head_dim)}
        attend = attention(c, kind, **biases, **norms, scale=scale, head_gate=True)
        return PreNormLayer(c.hidden_size, norm, attend, _feed_forward(c, i))

    return CausalLM(c, [layer(i, kind) for i, kind in enumerate(c.attention_kinds)], norm(c.hidden_size))


def weights(c: Step3p5Config) -> WeightMap:
    """Expert weights are stacked; layers after the last (MTP) and the vision tower are not used."""
    m = llama_names(c, gated=False)
    one_plus(m, c, NORMS)
    for i, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        m.rename(f"{layer}.self_attn.head_gate_proj", f"{layer}.self_attn.g_proj")
        if not c.is_sparse(i):
            m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.{name}" for name in GATE_UP])
            continue
        mlp, gate, inner = f"{layer}.mlp", *(CheckpointTensor(f"{layer}.moe.{part}_proj") for part in ("gate", "up"))
        m.rename(f"{mlp}.moe_gate_up_proj", Concat((gate, inner), axis=1))
        m.rename(f"{mlp}.moe_down_proj", f"{layer}.moe.down_proj")
        m.rename(f"{mlp}.gate", f"{layer}.moe.gate")
        m.rename(f"{mlp}.{CORRECTION}", f"{layer}.moe.router_bias")
        shared = [f"{layer}.share_expert.{part}_proj" for part in ("gate", "up")]
        m.concat(f"{mlp}.shared_experts.gate_up_proj", shared)
        m.rename(f"{mlp}.shared_experts.down_proj", f"{layer}.share_expert.down_proj")
    for i in range(c.num_nextn_predict_layers or 0):
        m.unused(f"{LAYER.format(c.num_hidden_layers + i)}.*")
    return m


TINY = Step3p5Config(
    **tiny.SIZES,
    **EXPERTS,
    sliding_window=21,
    layer_types=(FULL, SLIDING),
    num_sliding_attention_heads=6,
    moe_layers_enum="1",
    share_expert_dim=28,
    swiglu_limits=(0.0, 0.7),
    swiglu_limits_shared=(0.5, 0.0),
)
ARCHITECTURE = Architecture("step3p5", Step3p5Config, model, weights, tiny=TINY, quantization=ROUTERS_KEPT)
