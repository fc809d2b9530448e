"""RWKV-7: recurrent, without attention; see ``nn.rwkv``. Keys and names are those of fla-hub's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.rwkv import ChannelMix, Rwkv7TimeMix, RwkvSizes
from mlc_compiler.nn.states import RecurrentState
from model_zoo.architecture import Architecture
from model_zoo.config import BaseConfig, LayerKinds, RecurrentKind
from model_zoo.config_check import invalid
from model_zoo.transformer import CausalLM, Transformer
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, tie


@dataclass(frozen=True, kw_only=True)
class Rwkv7Config(BaseConfig):
    """*_low_rank_dim: ranks of the low-rank layers for decays, gates, rates (a), and the shares (v) of the first
    layer's values."""

    model_type: ClassVar[str] = "rwkv7"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "attn": (None,),
        "hidden_act": ("relu2", "sqrelu"),
        "norm_bias": (True,),
        "norm_first": (True,),
    }
    ignored: ClassVar[frozenset[str]] = frozenset(
        "attn_mode fuse_cross_entropy fuse_linear_cross_entropy fuse_norm num_heads use_l2warp value_dim".split()
    )

    head_dim: int = 64
    hidden_ratio: float = 4.0
    intermediate_size: int = 0
    norm_eps: float = 1e-5
    decay_low_rank_dim: int = 64
    gate_low_rank_dim: int = 128
    a_low_rank_dim: int = 64
    v_low_rank_dim: int = 16

    def __post_init__(self) -> None:
        self._fill("intermediate_size", -(-int(self.hidden_size * self.hidden_ratio) // 32) * 32)
        super().__post_init__()
        if self.hidden_size % self.head_dim:
            raise invalid("head_dim", self.head_dim, f"a divisor of hidden_size, {self.hidden_size}")

    @property
    def sizes(self) -> RwkvSizes:
        return RwkvSizes(self.hidden_size, self.hidden_size // self.head_dim, self.norm_eps * self.head_dim)

    @property
    def layer_kinds(self) -> tuple[LayerKinds, ...]:
        return ((RecurrentKind(self.sizes.arrays),),) * self.num_hidden_layers


class Rwkv7Layer(nn.Module):
    """A pre-norm layer of time mixing and channel mixing. values: those of the first layer."""

    def __init__(self, c: Rwkv7Config, index: int):
        ranks = (c.decay_low_rank_dim, c.a_low_rank_dim, c.v_low_rank_dim, c.gate_low_rank_dim)
        self.attn = Rwkv7TimeMix(c.sizes, ranks, first=index == 0)
        self.ffn = ChannelMix(c.hidden_size, c.intermediate_size, ("x_k",))
        self.attn_norm = nn.LayerNorm(c.hidden_size, c.norm_eps)
        self.ffn_norm = nn.LayerNorm(c.hidden_size, c.norm_eps)

    def forward(self, x_BSD: Tensor, values: Tensor | None, state: RecurrentState, layer: int) -> tuple[Tensor, Tensor]:
        batch, length, size = x_BSD.shape
        x = op.reshape(x_BSD, (batch * length, size))
        mixed, values = self.attn(self.attn_norm(x), values, state, layer)
        x = x + mixed
        return op.reshape(x + self.ffn(self.ffn_norm(x), state, layer), x_BSD.shape), values


class Rwkv7Model(Transformer):
    def forward(self, x: Tensor, states: Sequence[Any]) -> Tensor:
        assert self.embed_norm and self.norm
        x, values = self.embed_norm(x), None
        for ((state, index),), layer in zip(self.places, self.layers, strict=True):
            x, values = layer(x, values, states[state], index)
        return self.norm(x)


class Rwkv7ForCausalLM(CausalLM):
    decoder: ClassVar[type[Transformer]] = Rwkv7Model


def model(c: Rwkv7Config) -> Rwkv7ForCausalLM:
    norms = [nn.LayerNorm(c.hidden_size, c.norm_eps) for _ in range(2)]
    layers = [Rwkv7Layer(c, index) for index in range(c.num_hidden_layers)]
    return Rwkv7ForCausalLM(c, layers, norms[0], embedding_norm=norms[1])


def weights(c: Rwkv7Config) -> WeightMap:
    m = WeightMap()
    m.rename("model.embed_tokens", "model.embeddings")
    m.rename("model.embed_norm", "model.layers.0.pre_norm")
    for index, layer in enumerate(m.layers(LAYER, c.num_hidden_layers)):
        m.rename(f"{layer}.attn.norm", f"{layer}.attn.g_norm")
        for name in ("w_lora", "a_lora", "g_lora", *(["v_lora"] if index else [])):
            m.rename(f"{layer}.attn.{name}.down", f"{layer}.attn.{name}.lora.0")
            m.rename(f"{layer}.attn.{name}.up", f"{layer}.attn.{name}.lora.2")
    tie(m, c, "model.embeddings")
    return m


TINY = Rwkv7Config(
    vocab_size=1003,
    hidden_size=60,
    num_hidden_layers=2,
    head_dim=20,
    intermediate_size=72,
    decay_low_rank_dim=12,
    gate_low_rank_dim=16,
    a_low_rank_dim=8,
    v_low_rank_dim=4,
    context_window_size=256,
)
ARCHITECTURE = Architecture("rwkv7", Rwkv7Config, model, weights, tiny=TINY)
