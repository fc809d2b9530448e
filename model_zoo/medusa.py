"""Medusa: draft heads, each of residual blocks and an output head over the last hidden state (Cai et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op, spec
from mlc_compiler.nn.states import State
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(DecoderConfig):
    """medusa_num_heads: number of drafted tokens; medusa_num_layers: residual blocks per head.

    The sizes of a decoder's layers are unused.
    """

    model_type: ClassVar[str] = "medusa"
    chat_keys: ClassVar[tuple[str, ...]] = (
        "medusa_num_heads",
        "medusa_num_layers",
        "hidden_size",
        "vocab_size",
        "max_batch_size",
        "tensor_parallel_shards",
        "context_window_size",
        "prefill_chunk_size",
    )
    ignored: ClassVar[frozenset[str]] = frozenset({"base_model_name_or_path", "version"})
    rope: ClassVar[None] = None
    intermediate_size: int = 1
    num_hidden_layers: int = 1
    num_attention_heads: int = 1
    medusa_num_heads: int = 2
    medusa_num_layers: int = 1


class ResidualBlock(nn.Module):
    """``x + silu(linear(x))``"""

    def __init__(self, size: int):
        self.linear = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + op.silu(self.linear(x))


class Medusa(nn.Module):
    def __init__(self, c: MedusaConfig):
        self.medusa_head = nn.ModuleList([self._head(c) for _ in range(c.medusa_num_heads)])

    @staticmethod
    def _head(c: MedusaConfig) -> nn.ModuleList:
        blocks = [ResidualBlock(c.hidden_size) for _ in range(c.medusa_num_layers)]
        return nn.ModuleList([*blocks, nn.Linear(c.hidden_size, c.vocab_size, bias=False)])

    def logits(self, x_BD: Tensor) -> tuple[Tensor, ...]:
        """The logits of each head, float32 [B, V]."""
        results = []
        for head in self.medusa_head:
            y = x_BD
            for layer in head:
                y = layer(y)
            results.append(y.astype("float32"))
        return tuple(results)


def entry_points(model: Medusa, c: MedusaConfig, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """get_logits: hidden states [B, D] -> a tuple of logits, float32 [B, V] for each head."""
    hidden = {"hidden_states": spec.Tensor(["batch_size", c.hidden_size], dtype)}

    def get_logits(hidden_states: Tensor) -> tuple[Tensor, ...]:
        return model.logits(hidden_states)

    return {"get_logits": spec.Function(get_logits, hidden, "packed", {"batch_size": c.max_batch_size})}


def weights(c: MedusaConfig) -> WeightMap:
    m = WeightMap()
    m.optional_prefix("medusa_head.")
    return m


TINY = MedusaConfig(vocab_size=1003, hidden_size=100, context_window_size=256)
ARCHITECTURE = Architecture(
    "medusa", MedusaConfig, Medusa, weights, TINY, states=lambda config, dtype: (), entry_points=entry_points
)
