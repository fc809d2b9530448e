"""Building blocks of decoders and encoders; the file of a model chooses among them.

A layer takes x [B, S, D] and, for each of its states, the view of the state and its own index among the layers that
share it. B batch, S sequence, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.attention import SelfAttention
from mlc_compiler.nn.feed_forward import ACTIVATIONS, MLP, Activation, GatedMLP
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.nn.states import RecurrentState
from mlc_errors import UnsupportedError
from model_zoo.config import AttentionKind, BaseConfig, DecoderConfig
from model_zoo.decoder import places
from model_zoo.encoder import EncoderConfig

Norm = Callable[[int], nn.Module]
"""Number of normalized elements -> norm."""


def rms_norm(epsilon: float) -> Norm:
    return lambda size: nn.RMSNorm(size, epsilon)


def layer_norm(epsilon: float, bias: bool = True) -> Norm:
    return lambda size: nn.LayerNorm(size, epsilon, bias)


def attention(c: DecoderConfig, kind: AttentionKind | None = None, /, **options: Any) -> SelfAttention:
    """Attention with the sizes of the config, which ``kind`` may override; options: see ``SelfAttention``."""
    kind = kind or AttentionKind()
    heads, kv_heads = kind.heads or c.num_attention_heads, kind.kv_heads or c.num_key_value_heads
    size = kind.head_dim or c.head_dim
    return SelfAttention(c.hidden_size, heads, kv_heads, size, value_dim=kind.value_dim, **options)


def gated_mlp(c: DecoderConfig, activation: str = "silu", bias: bool = False, *, size: int | None = None) -> GatedMLP:
    """A gated MLP with the sizes of the config. size: inner elements; by default, ``intermediate_size``."""
    return GatedMLP(c.hidden_size, size or c.intermediate_size, activation_of(activation), bias)


def plain_mlp(c: DecoderConfig, activation: str, bias: bool = True) -> MLP:
    return MLP(c.hidden_size, c.intermediate_size, activation_of(activation), bias)


def activation_of(name: str) -> Activation:
    """The activation function named in config.json. Raises UnsupportedError for an unknown one."""
    if name not in ACTIVATIONS:
        raise UnsupportedError(
            f"hidden_act: got {name[:80]!r}; expected one of {', '.join(ACTIVATIONS)}", where=["config.json"]
        )
    return ACTIVATIONS[name]


class PreNormLayer(nn.Module):
    """A layer with norms before attention and MLP; ``multiplier`` scales what each adds to x."""

    def __init__(self, size: int, norm: Norm, attention: nn.Module, mlp: nn.Module, multiplier: float = 1.0):
        self.multiplier = multiplier
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm = norm(size)
        self.post_attention_layernorm = norm(size)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x = x + self._scaled(self.self_attn(self.input_layernorm(x), cache, layer))
        return x + self._scaled(self.mlp(self.post_attention_layernorm(x)))

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.multiplier == 1 else x * self.multiplier


class Unchanged(nn.Module):
    """Identity instead of a first layer's norm, if x is normalized already."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class PostNormLayer(nn.Module):
    """A layer with norms after attention and MLP, before their results are added to x."""

    def __init__(self, size: int, norm: Norm, attention: nn.Module, mlp: nn.Module):
        self.self_attn = attention
        self.mlp = mlp
        self.post_attention_layernorm = norm(size)
        self.post_feedforward_layernorm = norm(size)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(x, cache, layer))
        return x + self.post_feedforward_layernorm(self.mlp(x))


class NormedSumLayer(nn.Module):
    """The post-norm layer of Vaswani et al. 2017: norms after the results of attention and MLP are added to x."""

    def __init__(self, size: int, norm: Norm, attention: nn.Module, mlp: nn.Module):
        self.self_attn = attention
        self.mlp = mlp
        self.post_attention_layernorm = norm(size)
        self.post_feedforward_layernorm = norm(size)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x = self.post_attention_layernorm(x + self.self_attn(x, cache, layer))
        return self.post_feedforward_layernorm(x + self.mlp(x))


class SandwichLayer(nn.Module):
    """A layer with norms before and after attention and MLP."""

    def __init__(self, size: int, norm: Norm, attention: nn.Module, mlp: nn.Module):
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm = norm(size)
        self.post_attention_layernorm = norm(size)
        self.pre_feedforward_layernorm = norm(size)
        self.post_feedforward_layernorm = norm(size)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cache, layer))
        return x + self.post_feedforward_layernorm(self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.pre_feedforward_layernorm(x))


class ParallelLayer(nn.Module):
    """A layer that adds attention and MLP of the same x, with one norm for both or one for each."""

    def __init__(self, size: int, norm: Norm, attention: nn.Module, mlp: nn.Module, *, norms: int = 1):
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm = norm(size)
        self.post_attention_layernorm = norm(size) if norms == 2 else None

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        normed = self.input_layernorm(x)
        second = self.post_attention_layernorm(x) if self.post_attention_layernorm else normed
        return x + self.self_attn(normed, cache, layer) + self.mlp(second)


class MixerLayer(nn.Module):
    """A pre-norm layer with a single block: recurrent, attention or MLP."""

    def __init__(self, norm: nn.Module, mixer: nn.Module):
        self.norm = norm
        self.mixer = mixer

    def forward(self, x: Tensor, *states: Any) -> Tensor:
        return x + self.mixer(self.norm(x), *states)


class Transformer(nn.Module):
    """Embedding, layers, last norm. positions: learned positions, added to x before the layers; see ``CausalLM``."""

    def __init__(
        self,
        c: BaseConfig,
        layers: Sequence[nn.Module],
        norm: nn.Module | None,
        positions: LearnedPositions | None,
        embedding_norm: nn.Module | None,
    ):
        self.places = places(c)
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.embed_positions = positions
        self.embed_norm = embedding_norm
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x: Tensor, states: Sequence[PagedKVCache | RecurrentState]) -> Tensor:
        return self.with_added(x, states, ())

    def with_added(self, x: Tensor, states: Sequence[PagedKVCache | RecurrentState], added: Sequence[Tensor]) -> Tensor:
        """Like ``forward``; ``added[i]`` is added to the result of layer i."""
        if self.embed_positions:
            x = x + op.reshape(self.embed_positions(states[0].token_pos).astype(x.dtype), x.shape)
        if self.embed_norm:
            x = self.embed_norm(x)
        for i, (own, layer) in enumerate(zip(self.places, self.layers, strict=True)):
            x = layer(x, *(arg for state, index in own for arg in (states[state], index)))
            x = x + added[i] if i < len(added) else x
        return self.norm(x) if self.norm else x


class LearnedPositions(nn.Embedding):
    """A table [num + offset, dim] whose row ``p + offset`` is added at position p."""

    def __init__(self, num: int, dim: int, offset: int = 0):
        super().__init__(num + offset, dim)
        self.offset = offset

    def forward(self, indices: Tensor) -> Tensor:
        return super().forward(indices + self.offset if self.offset else indices)


class CausalLM(nn.Module):
    """A decoder with the methods that ``decoder.entry_points`` needs: ``embed``, ``forward`` and ``logits``.

    embedding_multiplier, logit_scale: factors of embeddings and logits. logit_soft_cap: unless 0, logits become
    ``cap * tanh(logits / cap)``. embedding_norm: norm of the embeddings. head_bias: whether the output head has a bias.
    """

    decoder: ClassVar[type[Transformer]] = Transformer

    def __init__(
        self,
        c: BaseConfig,
        layers: Sequence[nn.Module],
        norm: nn.Module | None,
        *,
        positions: LearnedPositions | None = None,
        embedding_norm: nn.Module | None = None,
        embedding_multiplier: float = 1.0,
        head_bias: bool = False,
        logit_scale: float = 1.0,
        logit_soft_cap: float = 0.0,
    ):
        self.embedding_multiplier = embedding_multiplier
        self.logit_scale, self.logit_soft_cap = logit_scale, logit_soft_cap
        self.model = self.decoder(c, layers, norm, positions, embedding_norm)
        self.lm_head = None if c.tie_word_embeddings else nn.Linear(c.hidden_size, c.vocab_size, bias=head_bias)

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.model.embed_tokens(input_ids)

    def forward(self, x_BSD: Tensor, *states: PagedKVCache | RecurrentState) -> Tensor:
        if self.embedding_multiplier != 1:
            x_BSD = x_BSD * self.embedding_multiplier
        return self.model(x_BSD, states)

    def logits(self, x_BSD: Tensor) -> Tensor:
        head = self.lm_head or self.model.embed_tokens.lm_head_forward
        logits = head(x_BSD)
        if self.logit_scale != 1:
            logits = logits * self.logit_scale
        cap = self.logit_soft_cap
        return op.tanh(logits / cap) * cap if cap else logits


class Encoder(nn.Module):
    """An encoder with the methods that ``encoder.entry_points`` needs: ``embed``, ``forward`` and ``project``.

    Options: see ``CausalLM``. Token type embeddings and dense heads exist if the configuration has their sizes.
    """

    def __init__(
        self,
        c: EncoderConfig,
        layers: Sequence[nn.Module],
        norm: nn.Module | None = None,
        *,
        positions: LearnedPositions | None = None,
        embedding_norm: nn.Module | None = None,
        embedding_multiplier: float = 1.0,
    ):
        self.embedding_multiplier = embedding_multiplier
        self.model = Transformer(c, layers, norm, positions, embedding_norm)
        self.token_types = nn.Embedding(c.type_vocab_size, c.hidden_size) if c.type_vocab_size else None
        sizes = (c.hidden_size, *c.dense_sizes)
        self.dense = nn.ModuleList([nn.Linear(n, m, c.dense_bias) for n, m in pairwise(sizes)])
        self.dense_activation = op.tanh if c.dense_activation == "tanh" else None

    def embed(self, input_ids: Tensor, token_types: Tensor | None = None) -> Tensor:
        x = self.model.embed_tokens(input_ids)
        return x if token_types is None or self.token_types is None else x + self.token_types(token_types)

    def forward(self, x_1SD: Tensor, *caches: PagedKVCache) -> Tensor:
        if self.embedding_multiplier != 1:
            x_1SD = x_1SD * self.embedding_multiplier
        return self.model(x_1SD, caches)

    def project(self, x_BD: Tensor) -> Tensor:
        for head in self.dense:
            x_BD = self.dense_activation(head(x_BD)) if self.dense_activation else head(x_BD)
        return x_BD


def pre_norm_model(
    c: DecoderConfig,
    norm: Norm,
    attention: Callable[[], nn.Module],
    mlp: Callable[[], nn.Module],
    *,
    multiplier: float = 1.0,
    kind: type[CausalLM] = CausalLM,
    **options: Any,
) -> CausalLM:
    """A decoder of class ``kind`` with equal pre-norm layers; options: see ``CausalLM``."""
    layers = [
        PreNormLayer(c.hidden_size, norm, attention(), mlp(), multiplier=multiplier) for _ in range(c.num_hidden_layers)
    ]
    return kind(c, layers, norm(c.hidden_size), **options)
