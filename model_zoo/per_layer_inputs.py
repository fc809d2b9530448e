"""Per-layer inputs, computed from the token and from its embedding (Gemma 3n and 4).

B batch, S sequence, D hidden, L layers, P elements of a layer's input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from model_zoo.transformer import CausalLM, Norm
from model_zoo.weight_map import WeightMap

NAMES = ("embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm")


class PerLayerInputs(nn.Module):
    """c: a config with ``vocab_size_per_layer_input`` and ``hidden_size_per_layer_input``, P."""

    def __init__(self, c: Any, norm: Norm):
        self.vocab, self.layers = c.vocab_size_per_layer_input, c.num_hidden_layers
        self.size = c.hidden_size_per_layer_input
        self.scale = c.hidden_size**-0.5
        self.embed_tokens_per_layer = nn.Embedding(self.vocab, self.layers * self.size)
        self.per_layer_model_projection = nn.Linear(c.hidden_size, self.layers * self.size, bias=False)
        self.per_layer_projection_norm = norm(self.size)

    def embed(self, input_ids: Tensor) -> Tensor:
        """int32 [S] -> [S, L P]; tokens beyond the table use its first row."""
        return self.embed_tokens_per_layer(op.where(input_ids < self.vocab, input_ids, 0))

    def forward(self, x_BSD: Tensor, rows: Tensor) -> list[Tensor]:
        """The input [B, S, P] of each layer. rows: [B, S, L P], see ``embed``."""
        batch, length, _ = rows.shape
        projected = op.reshape(self.per_layer_model_projection(x_BSD), (batch, length, self.layers, self.size))
        normed = self.per_layer_projection_norm(projected * self.scale)
        both = (op.reshape(normed, rows.shape) + rows * self.size**0.5) * 2.0**-0.5
        return list(op.split(both, self.layers, axis=-1))


class PerLayerGate(nn.Module):
    """``norm(projection(activation(gate(x)) * y))`` of x [B, S, D] and a layer's input y [B, S, P]."""

    def __init__(self, c: Any, norm: Norm, activation: nn.feed_forward.Activation):
        self.activation = activation
        self.per_layer_input_gate = nn.Linear(c.hidden_size, c.hidden_size_per_layer_input, bias=False)
        self.per_layer_projection = nn.Linear(c.hidden_size_per_layer_input, c.hidden_size, bias=False)
        self.post_per_layer_input_norm = norm(c.hidden_size)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gated = self.activation(self.per_layer_input_gate(x)) * y
        return self.post_per_layer_input_norm(self.per_layer_projection(gated))


class PerLayerCausalLM(CausalLM):
    """A decoder whose layers take their per-layer input as last argument; ``embed`` appends the rows of these to the
    embeddings."""

    def __init__(self, c: Any, layers: Sequence[nn.Module], norm: Norm, **options: Any):
        super().__init__(c, layers, norm(c.hidden_size), **options)
        self.hidden_size = c.hidden_size
        self.per_layer = PerLayerInputs(c, norm)

    def embed(self, input_ids: Tensor) -> Tensor:
        return op.concat([self.embed_tokens(input_ids), self.per_layer.embed(input_ids)], axis=-1)

    def embed_tokens(self, input_ids: Tensor) -> Tensor:
        """int32 [S] -> [S, D]"""
        return super().embed(input_ids)

    def forward(self, x_BSE: Tensor, *caches: Any) -> Tensor:
        x_BSD, rows = op.split(x_BSE, [self.hidden_size], axis=-1)
        x_BSD = x_BSD * self.embedding_multiplier
        inputs = self.per_layer(x_BSD, rows)
        x: Any = self.first(x_BSD)
        for ((cache, index),), layer, y in zip(self.model.places, self.model.layers, inputs, strict=True):
            x = layer(x, caches[cache], index, y)
        assert self.model.norm
        return self.model.norm(self.last(x))

    def first(self, x_BSD: Tensor) -> Any:
        """The input of the first layer, from embeddings."""
        return x_BSD

    def last(self, x: Any) -> Tensor:
        """The hidden states, from the result of the last layer."""
        return x


def per_layer_rules(m: WeightMap, layers: Sequence[str]) -> None:
    """Add the rules of a ``PerLayerCausalLM`` with a ``PerLayerGate`` named ``per_layer`` in each layer."""
    for name in NAMES:
        m.rename(f"per_layer.{name}", f"model.{name}")
    for layer in layers:
        for name in ("per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"):
            m.rename(f"{layer}.per_layer.{name}", f"{layer}.{name}")
