"""Gemma 3n, text: AltUp streams, low-rank residuals (LAuReL), per-layer embeddings, KV caches shared between layers.

AltUp: Baykal et al. 2023, "Alternating Updates for Efficient Transformers"; LAuReL: Menghani et al. 2024, "LAuReL:
Learned Augmented Residual Layer". The model that also takes images is in ``gemma3n_images.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.attention import SharedAttention
from mlc_compiler.nn.feed_forward import Activation
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.norms import UnweightedRMSNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.gemma3n_config import Gemma3nTextConfig
from model_zoo.per_layer_inputs import PerLayerCausalLM, PerLayerGate, per_layer_rules
from model_zoo.transformer import SandwichLayer, activation_of, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, shared_attention_rules, tie

SMALLEST_SQUARE = 1e-5


class AltUp(nn.Module):
    """AltUp streams, [B, S, D] each: a layer computes the active one; the others are predicted and corrected."""

    def __init__(self, c: Gemma3nTextConfig):
        self.count, self.active, self.scale = c.altup_num_inputs, c.altup_active_idx or 0, 1 / c.hidden_size
        self.prediction_coefs = nn.Linear(self.count, self.count**2, bias=False)
        self.correction_coefs = nn.Linear(self.count, self.count, bias=False)
        self.modality_router = nn.Linear(c.hidden_size, self.count, bias=False)
        self.router_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.correct_output_scale = nn.Parameter((c.hidden_size,))

    def predict(self, streams: Sequence[Tensor]) -> list[Tensor]:
        """Each stream plus a linear combination of all, with coefficients that depend on the active stream."""
        coefs = op.split(self.prediction_coefs(self._modalities(streams[self.active])), self.count**2, axis=-1)
        rows = [coefs[i * self.count : (i + 1) * self.count] for i in range(self.count)]
        return [x + sum_of(a * y for a, y in zip(row, streams, strict=True)) for x, row in zip(streams, rows)]

    def correct(self, predictions: Sequence[Tensor], computed: Tensor) -> list[Tensor]:
        """Each prediction plus a multiple of the difference between the layer's result and the active prediction."""
        coefs = op.split(self.correction_coefs(self._modalities(computed)) + 1.0, self.count, axis=-1)
        difference = computed - predictions[self.active]
        return [x + difference * a for x, a in zip(predictions, coefs, strict=True)]

    def _modalities(self, x: Tensor) -> Tensor:
        return op.tanh(self.modality_router(self.router_norm(x) * self.scale))


class Laurel(nn.Module):
    """``x + norm(right(left(x)))``, with low-rank linear layers"""

    def __init__(self, c: Gemma3nTextConfig):
        self.linear_left = nn.Linear(c.hidden_size, c.laurel_rank, bias=False)
        self.linear_right = nn.Linear(c.laurel_rank, c.hidden_size, bias=False)
        self.post_laurel_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.post_laurel_norm(self.linear_right(self.linear_left(x)))


class Gemma3nLayer(SandwichLayer):
    """Layer on a list of streams [B, S, D]. inputs: the layer's per-layer embeddings [B, S, P]."""

    def __init__(self, c: Gemma3nTextConfig, attend: nn.Module, mlp: nn.Module):
        norm = rms_norm(c.rms_norm_eps)
        super().__init__(c.hidden_size, norm, attend, mlp)
        self.scales_output = c.altup_correct_scale
        self.altup, self.laurel = AltUp(c), Laurel(c)
        self.per_layer = PerLayerGate(c, norm, activation_of(c.hidden_activation))

    def forward(self, streams: Any, cache: PagedKVCache, layer: int, *inputs: Tensor) -> Any:
        predictions = self.altup.predict(streams)
        corrected = self.altup.correct(predictions, self._computed(predictions[self.altup.active], cache, layer))
        output = corrected[self.altup.active]
        if self.scales_output:
            output = output * self.altup.correct_output_scale.astype(output.dtype)
        more = self.per_layer(output, *inputs)
        return [corrected[0], *(x + more for x in corrected[1:])]

    def _computed(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        normed = self.input_layernorm(x)
        attended = x + self.post_attention_layernorm(self.self_attn(normed, cache, layer))
        x = (attended + self.laurel(normed)) * 2.0**-0.5
        return x + self.post_feedforward_layernorm(self.feed_forward(x))


class Gemma3nForCausalLM(PerLayerCausalLM):
    """The inactive streams begin and end as projections of the first stream, scaled to its magnitude."""

    def __init__(self, c: Gemma3nTextConfig, layers: Sequence[nn.Module], **options: Any):
        super().__init__(c, layers, rms_norm(c.rms_norm_eps), **options)
        more = range(c.altup_num_inputs - 1)
        self.altup_projections = nn.ModuleList([nn.Linear(c.hidden_size, c.hidden_size, bias=False) for _ in more])
        self.altup_unembed_projections = nn.ModuleList(
            [nn.Linear(c.hidden_size, c.hidden_size, bias=False) for _ in more]
        )

    def first(self, x_BSD: Tensor) -> list[Tensor]:
        return [x_BSD, *(like(project(x_BSD), x_BSD) for project in self.altup_projections)]

    def last(self, streams: Sequence[Tensor]) -> Tensor:
        x, *others = streams
        projected = (project(y) for project, y in zip(self.altup_unembed_projections, others, strict=True))
        return sum_of([x, *(like(y, x) for y in projected)]) * (1 / len(streams))


def sum_of(terms: Any) -> Tensor:
    first, *rest = terms
    return sum(rest, start=first)


def like(x: Tensor, model: Tensor) -> Tensor:
    """x scaled to the root mean square of ``model`` along the last axis."""
    magnitude = op.sqrt(op.mean(op.square(model), axis=-1, keepdims=True))
    return x * magnitude / op.sqrt(op.maximum(op.mean(op.square(x), axis=-1, keepdims=True), SMALLEST_SQUARE))


def sparse(activation: Activation, sparsity: float) -> Activation:
    """``activation(relu(x - q))``; q: quantile ``sparsity`` of a normal distribution with x's mean and variance."""
    deviations = NormalDist().inv_cdf(sparsity)

    def apply(x: Tensor) -> Tensor:
        mean = op.mean(x, axis=-1, keepdims=True)
        deviation = op.sqrt(op.mean(op.square(x - mean), axis=-1, keepdims=True))
        return activation(op.relu(x - (mean + deviation * deviations)))

    return apply


def attention_of(c: Gemma3nTextConfig, layer: int) -> nn.Module:
    norm, biases = rms_norm(c.rms_norm_eps), c.attention_bias
    if layer >= c.kv_layers:
        heads = c.num_attention_heads
        return SharedAttention(c.hidden_size, heads, c.head_dim, bias=biases, q_norm=norm(c.head_dim), scale=1.0)
    norms = {"q_norm": norm(c.head_dim), "k_norm": norm(c.head_dim)}
    v_norm = UnweightedRMSNorm(c.head_dim, c.rms_norm_eps)
    return attention(c, qkv_bias=biases, out_bias=biases, **norms, v_norm=v_norm, scale=1.0)


def mlp_of(c: Gemma3nTextConfig, layer: int) -> nn.Module:
    mlp = gated_mlp(c, c.hidden_activation)
    if sparsity := c.sparsity(layer):
        mlp.activation = sparse(mlp.activation, sparsity)
    return mlp


def model(c: Gemma3nTextConfig, kind: type[Gemma3nForCausalLM] = Gemma3nForCausalLM) -> Gemma3nForCausalLM:
    layers = [Gemma3nLayer(c, attention_of(c, i), mlp_of(c, i)) for i in range(c.num_hidden_layers)]
    scale, cap = math.sqrt(c.hidden_size), c.final_logit_softcapping or 0.0
    return kind(c, layers, embedding_multiplier=scale, logit_soft_cap=cap)


def weights(c: Gemma3nTextConfig) -> WeightMap:
    m = WeightMap()
    layers = list(m.layers(LAYER, c.num_hidden_layers))
    for i, layer in enumerate(layers):
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.mlp.{part}_proj" for part in ("gate", "up")])
        shared_attention_rules(m, f"{layer}.self_attn", "qkv" if i < c.kv_layers else "")
    per_layer_rules(m, layers)
    for name in ("altup_projections", "altup_unembed_projections"):
        for i in range(c.altup_num_inputs - 1):
            m.rename(f"{name}.{i}", f"model.{name}.{i}")
    tie(m, c, "model.embed_tokens")
    return m


SIZES = {
    **tiny.SIZES,
    "num_hidden_layers": 4,
    "layer_types": ("sliding_attention", "full_attention") * 2,
    "sliding_window": 21,
    "activation_sparsity_pattern": (0.95, 0.0, 0.0, 0.0),
    "vocab_size_per_layer_input": 1001,
    "hidden_size_per_layer_input": 12,
    "num_kv_shared_layers": 2,
    "laurel_rank": 8,
}
TEXT = Architecture("gemma3n_text", Gemma3nTextConfig, model, weights, tiny=Gemma3nTextConfig(**SIZES))
