"""Gemma 4, text: Gemma 3 with wider heads in full layers, per-layer embeddings, shared KV caches, optional experts."""

from __future__ import annotations

import math
from typing import Any

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.attention import SelfAttention, SharedAttention
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.norms import UnweightedRMSNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.gemma4_config import Gemma4TextConfig
from model_zoo.per_layer_inputs import PerLayerCausalLM, PerLayerGate, per_layer_rules
from model_zoo.transformer import CausalLM, SandwichLayer, activation_of, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, shared_attention_rules, tie
from quantization.rewrite import Exceptions


class ExpertsBesideMLP(nn.Module):
    """A mixture of experts beside an MLP: their results are normalized separately and added."""

    def __init__(self, c: Gemma4TextConfig):
        assert c.num_experts and c.top_k_experts and c.moe_intermediate_size
        norm = rms_norm(c.rms_norm_eps)
        self.routing = nn.Routing(c.top_k_experts, renormalize=True)
        self.activation = nn.gated(activation_of(c.hidden_activation))
        self.scalar = c.hidden_size**-0.5
        self.norm = UnweightedRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.scale = nn.Parameter((c.hidden_size,))
        self.proj = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.per_expert_scale = nn.Parameter((c.num_experts,))
        self.gate_up_proj = nn.Experts(c.num_experts, c.hidden_size, 2 * c.moe_intermediate_size)
        self.down_proj = nn.Experts(c.num_experts, c.moe_intermediate_size, c.hidden_size)
        self.post_feedforward_layernorm_1 = norm(c.hidden_size)
        self.post_feedforward_layernorm_2 = norm(c.hidden_size)
        self.pre_feedforward_layernorm_2 = norm(c.hidden_size)

    def forward(self, x: Tensor, dense: Tensor) -> Tensor:
        x2 = self.pre_feedforward_layernorm_2(x)
        routed = nn.mixture(x2, self.choice(x), self.gate_up_proj, self.down_proj, self.activation)
        return self.post_feedforward_layernorm_1(dense) + self.post_feedforward_layernorm_2(routed)

    def choice(self, x: Tensor) -> nn.Choice:
        weights, experts = self.routing(self.proj(self.norm(x) * self.scale.astype(x.dtype) * self.scalar))
        scales = op.take(self.per_expert_scale.astype("float32"), experts, axis=0)
        return nn.Choice(weights * scales, experts)


class Gemma4Layer(SandwichLayer):
    """A sandwich-norm layer with a gated per-layer embedding and a scale of its result."""

    def __init__(self, c: Gemma4TextConfig, attend: nn.Module, mlp: nn.Module):
        norm = rms_norm(c.rms_norm_eps)
        super().__init__(c.hidden_size, norm, attend, mlp)
        self.experts = ExpertsBesideMLP(c) if c.enable_moe_block else None
        has_input = bool(c.hidden_size_per_layer_input)
        self.per_layer = PerLayerGate(c, norm, activation_of(c.hidden_activation)) if has_input else None
        self.layer_scalar = nn.Parameter((1,))

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int, y: Tensor | None = None) -> Tensor:
        x = super().forward(x, cache, layer)
        if self.per_layer:
            x = x + self.per_layer(x, y)
        return x * self.layer_scalar.astype(x.dtype)

    def feed_forward(self, x: Tensor) -> Tensor:
        dense = super().feed_forward(x)
        return self.experts(x, dense) if self.experts else dense


def attention_of(c: Gemma4TextConfig, layer: int) -> nn.Module:
    kind = c.attention_kinds[layer]
    heads, head_dim = c.num_attention_heads, kind.head_dim or c.head_dim
    norm = rms_norm(c.rms_norm_eps)
    if layer >= c.kv_layers:
        return SharedAttention(c.hidden_size, heads, head_dim, bias=c.attention_bias, q_norm=norm(head_dim), scale=1.0)
    return SelfAttention(
        c.hidden_size,
        heads,
        kind.kv_heads or c.num_key_value_heads,
        head_dim,
        qkv_bias=c.attention_bias,
        out_bias=c.attention_bias,
        q_norm=norm(head_dim),
        k_norm=norm(head_dim),
        v_norm=UnweightedRMSNorm(head_dim, c.rms_norm_eps),
        keys_as_values=has_keys_as_values(c, layer),
        scale=1.0,
    )


def has_keys_as_values(c: Gemma4TextConfig, layer: int) -> bool:
    return c.attention_k_eq_v and c.attention_kinds[layer].window is None


def mlp_of(c: Gemma4TextConfig, layer: int) -> nn.Module:
    is_wide = c.use_double_wide_mlp and layer >= c.kv_layers
    return gated_mlp(c, c.hidden_activation, size=c.intermediate_size * (2 if is_wide else 1))


def model(c: Gemma4TextConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)
    layers = [Gemma4Layer(c, attention_of(c, i), mlp_of(c, i)) for i in range(c.num_hidden_layers)]
    options: dict[str, Any] = {
        "embedding_multiplier": math.sqrt(c.hidden_size),
        "logit_soft_cap": c.final_logit_softcapping or 0.0,
    }
    if c.hidden_size_per_layer_input:
        return PerLayerCausalLM(c, layers, norm, **options)
    return CausalLM(c, layers, norm(c.hidden_size), **options)


def weights(c: Gemma4TextConfig) -> WeightMap:
    m = WeightMap()
    layers = list(m.layers(LAYER, c.num_hidden_layers))
    for i, layer in enumerate(layers):
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.mlp.{part}_proj" for part in ("gate", "up")])
        stored = "qk" if has_keys_as_values(c, i) else "qkv"
        shared_attention_rules(m, f"{layer}.self_attn", stored if i < c.kv_layers else "")
        if c.enable_moe_block:
            _expert_rules(m, layer)
    if c.hidden_size_per_layer_input:
        per_layer_rules(m, layers)
    tie(m, c, "model.embed_tokens")
    return m


def _expert_rules(m: WeightMap, layer: str) -> None:
    inner = f"{layer}.experts"
    for name in ("scale", "per_expert_scale", "proj.weight"):
        m.rename(f"{inner}.{name}", f"{layer}.router.{name}")
    for name in ("gate_up_proj", "down_proj"):
        m.rename(f"{inner}.{name}.weight", f"{inner}.{name}")
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        m.rename(f"{inner}.{name}", f"{layer}.{name}")


SIZES = {
    **tiny.SIZES,
    "num_hidden_layers": 4,
    "layer_types": ("sliding_attention", "full_attention") * 2,
    "sliding_window": 21,
    "global_head_dim": 28,
    "vocab_size_per_layer_input": 1003,
    "hidden_size_per_layer_input": 12,
    "num_kv_shared_layers": 2,
}
KEPT = Exceptions(kept=("*.experts.proj",))
TEXT = Architecture("gemma4_text", Gemma4TextConfig, model, weights, Gemma4TextConfig(**SIZES), quantization=KEPT)
