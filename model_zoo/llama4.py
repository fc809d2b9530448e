"""Llama 4, text: chunked attention, layers without RoPE, experts with scaled inputs, a shared expert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.attention import Growth
from mlc_compiler.nn.norms import UnweightedRMSNorm
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind
from model_zoo.config_check import check_chosen_experts
from model_zoo.layer_types import FULL, SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, PreNormLayer, attention, gated_mlp, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names
from quantization.rewrite import Exceptions

CHUNKED = "chunked_attention"


@dataclass(frozen=True, kw_only=True)
class Llama4TextConfig(LayerTypesConfig):
    """sliding_window: positions of a chunk. no_rope_layers: 0 for a layer without RoPE; by default, every
    ``no_rope_layer_interval``-th layer. moe_layers: layers with experts; by default, every
    ``interleave_moe_layer_step``-th layer. floor_scale, attn_scale: see ``growth``. intermediate_size: elements of an
    expert. intermediate_size_mlp: elements of the MLP in layers without experts.
    """

    model_type: ClassVar[str] = "llama4_text"
    interleaved_rotary: ClassVar[bool] = True
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"sliding_window": ("attention_chunk_size",)}

    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    context_window_size: int = 131072
    sliding_window: int | None = 8192  # type: ignore[misc]  # a class constant of DecoderConfig
    no_rope_layers: Sequence[int] | None = None
    no_rope_layer_interval: int = 4
    use_qk_norm: bool = True
    attn_temperature_tuning: bool = True
    floor_scale: int = 8192
    attn_scale: float = 0.1
    intermediate_size_mlp: int = 16384
    num_local_experts: int = 16
    num_experts_per_tok: int = 1
    moe_layers: Sequence[int] | None = None
    interleave_moe_layer_step: int = 1

    def __post_init__(self) -> None:
        self._keep("no_rope_layers", self.no_rope_layers or self._default_rope_layers())
        self._check_layers("no_rope_layers", self.no_rope_layers)
        if self.moe_layers is None:
            step = self.interleave_moe_layer_step
            self._keep("moe_layers", range(step - 1, self.num_hidden_layers, step))
        else:
            self._keep("moe_layers", self.moe_layers)
        super().__post_init__()
        check_chosen_experts(self.num_experts_per_tok, "num_local_experts", self.num_local_experts)

    def _keep(self, name: str, values: Sequence[int]) -> None:
        object.__setattr__(self, name, tuple(values))

    def _default_rope_layers(self) -> Sequence[int]:
        return [int((i + 1) % self.no_rope_layer_interval != 0) for i in range(self.num_hidden_layers)]

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        kinds = raw.get("layer_types")
        if isinstance(kinds, list):
            raw = {**raw, "layer_types": [SLIDING if kind == CHUNKED else kind for kind in kinds]}
        return super().from_hf(raw)

    def default_layer_types(self) -> tuple[str, ...]:
        return tuple(SLIDING if self.has_rope(i) else FULL for i in range(self.num_hidden_layers))

    def has_rope(self, layer: int) -> bool:
        assert self.no_rope_layers is not None
        return bool(self.no_rope_layers[layer])

    def has_experts(self, layer: int) -> bool:
        assert self.moe_layers is not None
        return layer in self.moe_layers

    def growth(self, layer: int) -> Growth | None:
        """Growth of queries in layers without RoPE (Nakanishi 2025, "Scalable-Softmax Is Superior for Attention")."""
        grows = self.attn_temperature_tuning and not self.has_rope(layer)
        return Growth(self.attn_scale, self.floor_scale, offset=1) if grows else None

    def _kind(self, layer: int) -> AttentionKind:
        kind = super()._kind(layer)
        return replace(kind, chunked=kind.window is not None)


class Llama4Experts(nn.Module):
    """A shared expert and routed experts, whose inputs are scaled by the sigmoid of the router's logit."""

    def __init__(self, c: Llama4TextConfig):
        self.routing = nn.Routing(c.num_experts_per_tok, score="sigmoid")
        self.router = nn.Linear(c.hidden_size, c.num_local_experts, bias=False)
        self.gate_up_proj = nn.Experts(c.num_local_experts, c.hidden_size, 2 * c.intermediate_size)
        self.down_proj = nn.Experts(c.num_local_experts, c.intermediate_size, c.hidden_size)
        self.shared_expert = gated_mlp(c, c.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        choice = self.routing(self.router(x))
        tokens, k = choice.experts.shape
        rows = op.reshape(x, (tokens, 1, x.shape[-1])) * op.reshape(choice.weights, (tokens, k, 1)).astype(x.dtype)
        each = nn.Choice(op.ones((tokens * k, 1), "float32"), op.reshape(choice.experts, (tokens * k, 1)))
        routed = nn.mixture(op.reshape(rows, (tokens * k, x.shape[-1])), each, self.gate_up_proj, self.down_proj)
        summed = op.sum(op.reshape(routed, rows.shape), axis=1)
        return self.shared_expert(x) + op.reshape(summed, x.shape)


def model(c: Llama4TextConfig) -> CausalLM:
    norm = rms_norm(c.rms_norm_eps)

    def layer(i: int) -> nn.Module:
        # RoPE preserves the norm of a vector, so norms without weights may come before it.
        length = UnweightedRMSNorm(c.head_dim, c.rms_norm_eps) if c.use_qk_norm and c.has_rope(i) else None
        biases = {"qkv_bias": c.attention_bias, "out_bias": c.attention_bias}
        attend = attention(c, **biases, q_norm=length, k_norm=length, growth=c.growth(i))
        dense = gated_mlp(c, c.hidden_act, size=c.intermediate_size_mlp)
        return PreNormLayer(c.hidden_size, norm, attend, Llama4Experts(c) if c.has_experts(i) else dense)

    return CausalLM(c, [layer(i) for i in range(c.num_hidden_layers)], norm(c.hidden_size))


def weights(c: Llama4TextConfig) -> WeightMap:
    """Expert weights are stored as [E, in, out]."""
    m = llama_names(c, gated=False)
    for i, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        ours, stored = f"{layer}.mlp", f"{layer}.feed_forward"
        if c.has_experts(i):
            m.rename(f"{ours}.router", f"{stored}.router")
            for name in ("gate_up_proj", "down_proj"):
                m.transpose(f"{ours}.{name}.weight", f"{stored}.experts.{name}")
            ours, stored = f"{ours}.shared_expert", f"{stored}.shared_expert"
        m.concat(f"{ours}.gate_up_proj", [f"{stored}.{part}_proj" for part in ("gate", "up")])
        m.rename(f"{ours}.down_proj", f"{stored}.down_proj")
    return m


SIZES = {
    **tiny.SIZES,
    "intermediate_size_mlp": 72,
    "sliding_window": 21,
    "no_rope_layer_interval": 2,
    "floor_scale": 16,
    "num_local_experts": 7,
    "interleave_moe_layer_step": 2,
}
KEPT = Exceptions(kept=("*.router",))
TEXT = Architecture("llama4_text", Llama4TextConfig, model, weights, Llama4TextConfig(**SIZES), quantization=KEPT)
