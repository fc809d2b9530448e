"""RWKV-5 and RWKV-6: recurrent models without attention; see ``nn.rwkv``.

``rescale_every``, by which inference in float16 halves the residual, has no effect on logits and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.rwkv import ChannelMix, Rwkv5TimeMix, Rwkv6TimeMix, RwkvSizes
from mlc_compiler.nn.states import RecurrentState
from model_zoo.architecture import Architecture
from model_zoo.config import BaseConfig, LayerKinds, RecurrentKind
from model_zoo.config_check import invalid
from model_zoo.transformer import CausalLM
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, tie

WIDE = 4096  # from this hidden size on, RWKV-6 has twice the low ranks


@dataclass(frozen=True, kw_only=True)
class RwkvConfig(BaseConfig):
    """head_size_divisor: its square times ``layer_norm_epsilon`` is the epsilon of the norm of each head."""

    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"context_window_size": ("context_length",)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attention_hidden_size head_size_divisor_a num_attention_heads rescale_every".split()
    )

    head_size: int = 64
    head_size_divisor: int = 8
    intermediate_size: int = 0
    layer_norm_epsilon: float = 1e-5
    context_window_size: int = 4096

    def __post_init__(self) -> None:
        self._fill("intermediate_size", int(self.hidden_size * 3.5) // 32 * 32)
        super().__post_init__()
        if self.hidden_size % self.head_size:
            raise invalid("head_size", self.head_size, f"a divisor of hidden_size, {self.hidden_size}")

    @property
    def sizes(self) -> RwkvSizes:
        epsilon = self.layer_norm_epsilon * self.head_size_divisor**2
        return RwkvSizes(self.hidden_size, self.hidden_size // self.head_size, epsilon)

    @property
    def layer_kinds(self) -> tuple[LayerKinds, ...]:
        return ((RecurrentKind(self.sizes.arrays),),) * self.num_hidden_layers


@dataclass(frozen=True, kw_only=True)
class Rwkv5Config(RwkvConfig):
    model_type: ClassVar[str] = "rwkv5"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"model_version": (None, "5_2")}


@dataclass(frozen=True, kw_only=True)
class Rwkv6Config(RwkvConfig):
    """time_mix_extra_dim, time_decay_extra_dim: ranks of the low-rank layers for token mixing and decays."""

    model_type: ClassVar[str] = "rwkv6"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"model_version": (None, "6_0")}
    time_mix_extra_dim: int = 0
    time_decay_extra_dim: int = 0

    def __post_init__(self) -> None:
        self._fill("time_mix_extra_dim", 32 if self.hidden_size < WIDE else 64)
        self._fill("time_decay_extra_dim", 64 if self.hidden_size < WIDE else 128)
        super().__post_init__()


class RwkvLayer(nn.Module):
    """A pre-norm layer of time mixing and channel mixing."""

    def __init__(self, c: RwkvConfig, attention: nn.Module, feed_forward: ChannelMix):
        self.attention, self.feed_forward = attention, feed_forward
        self.ln1 = nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon)
        self.ln2 = nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon)

    def forward(self, x_BSD: Tensor, state: RecurrentState, layer: int) -> Tensor:
        batch, length, size = x_BSD.shape
        x = op.reshape(x_BSD, (batch * length, size))
        x = x + self.attention(self.ln1(x), state, layer)
        return op.reshape(x + self.feed_forward(self.ln2(x), state, layer), x_BSD.shape)


def model5(c: Rwkv5Config) -> CausalLM:
    shares = ("time_mix_key", "time_mix_receptance")
    sizes = (c.hidden_size, c.intermediate_size)
    return _model(
        c, [RwkvLayer(c, Rwkv5TimeMix(c.sizes), ChannelMix(*sizes, shares, True)) for _ in range(c.num_hidden_layers)]
    )


def model6(c: Rwkv6Config) -> CausalLM:
    shares, ranks = ("time_maa_k", "time_maa_r"), (c.time_mix_extra_dim, c.time_decay_extra_dim)
    sizes = (c.hidden_size, c.intermediate_size)
    return _model(
        c, [RwkvLayer(c, Rwkv6TimeMix(c.sizes, *ranks), ChannelMix(*sizes, shares)) for _ in range(c.num_hidden_layers)]
    )


def _model(c: RwkvConfig, layers: list[nn.Module]) -> CausalLM:
    norms = [nn.LayerNorm(c.hidden_size, c.layer_norm_epsilon) for _ in range(2)]
    return CausalLM(c, layers, norms[0], embedding_norm=norms[1])


def weights(c: RwkvConfig) -> WeightMap:
    m = WeightMap()
    m.other_prefix("model.layers.", "rwkv.blocks.")
    m.rename("model.embed_tokens", "rwkv.embeddings")
    m.rename("model.embed_norm", "rwkv.blocks.0.pre_ln")
    m.rename("model.norm", "rwkv.ln_out")
    m.rename("lm_head", "head")
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.rename(f"{layer}.attention.norm", f"{layer}.attention.ln_x")
    tie(m, c, "rwkv.embeddings")
    return m


SIZES: dict[str, Any] = {
    "vocab_size": 1003,
    "hidden_size": 60,
    "num_hidden_layers": 2,
    "head_size": 20,
    "intermediate_size": 72,
    "context_window_size": 256,
}
RWKV5 = Architecture("rwkv5", Rwkv5Config, model5, weights, tiny=Rwkv5Config(**SIZES))
RWKV6 = Architecture(
    "rwkv6", Rwkv6Config, model6, weights, tiny=Rwkv6Config(**SIZES, time_mix_extra_dim=8, time_decay_extra_dim=12)
)
