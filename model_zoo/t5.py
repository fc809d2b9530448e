"""T5 and Flan-T5: an encoder-decoder with relative position biases.

Raffel et al. 2020. Layers are pre-norm. Scores are not scaled; a learned bias of the head and the distance is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from model_zoo import encoder_decoder, tiny
from model_zoo.architecture import Architecture
from model_zoo.distance_biases import DistanceBiases
from model_zoo.encoder import WholeTextConfig
from model_zoo.encoder_decoder import TargetCache
from model_zoo.transformer import PreNormLayer, Transformer, attention, gated_mlp, plain_mlp, rms_norm
from model_zoo.weight_map import WeightMap

QKV = ("SelfAttention.q", "SelfAttention.k", "SelfAttention.v")


@dataclass(frozen=True, kw_only=True)
class T5Config(WholeTextConfig):
    """relative_attention_num_buckets: biases per head; distances from relative_attention_max_distance on share one.

    feed_forward_proj: an activation, prefixed by ``gated-`` for a gated MLP. scale_decoder_outputs: whether the output
    head's input is divided by the square root of its size; None: if embeddings are tied.
    """

    model_type: ClassVar[str] = "t5"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_size": ("d_model",),
        "head_dim": ("d_kv",),
        "intermediate_size": ("d_ff",),
        "num_hidden_layers": ("num_layers",),
        "num_attention_heads": ("num_heads",),
        "context_window_size": ("n_positions",),
    }
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"is_decoder": (False,)}
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"dense_act_fn", "dropout_rate", "initializer_factor", "is_gated_act", "output_past"}
    )
    rope: ClassVar[None] = None
    num_decoder_layers: int = 0
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    scale_decoder_outputs: bool | None = None
    decoder_start_token_id: int | None = 0
    tie_word_embeddings: bool = True
    context_window_size: int = 512

    def __post_init__(self) -> None:
        self._fill("num_decoder_layers", self.num_hidden_layers)
        super().__post_init__()

    @property
    def output_scale(self) -> float:
        scaled = self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs
        return self.hidden_size**-0.5 if scaled else 1.0


def distance_biases(c: T5Config, backward: bool) -> DistanceBiases:
    return DistanceBiases(
        c.num_attention_heads, c.relative_attention_num_buckets, c.relative_attention_max_distance, backward
    )


class CrossAttention(nn.Module):
    """Cross attention of the decoder's tokens to the source, whose keys and values are stored once."""

    def __init__(self, c: T5Config):
        self.heads, self.head_dim = c.num_attention_heads, c.head_dim
        size = self.heads * self.head_dim
        self.q_proj = nn.Linear(c.hidden_size, size, bias=False)
        self.kv_proj = nn.Linear(c.hidden_size, 2 * size, bias=False)
        self.o_proj = nn.Linear(size, c.hidden_size, bias=False)

    def store(self, source: Tensor, cache: PagedKVCache, layer: int) -> None:
        """Store keys and values of the source in the KV cache. source: hidden states [1, S, D]."""
        _, length, _ = source.shape
        k, v = op.split(op.reshape(self.kv_proj(source), (length, 2 * self.heads, self.head_dim)), 2, axis=1)
        cache.append(layer, k, v)

    def forward(self, x: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        batch, length, _ = x.shape
        q = op.reshape(self.q_proj(x), (batch * length, self.heads, self.head_dim))
        out = cache.attention_to_stored(layer, q, 1.0)
        return self.o_proj(op.reshape(out, (batch, length, self.heads * self.head_dim)))


class DecoderLayer(PreNormLayer):
    """An encoder layer with cross attention between attention and MLP."""

    def __init__(self, c: T5Config):
        norm = rms_norm(c.layer_norm_epsilon)
        super().__init__(c.hidden_size, norm, attention(c, scale=1.0), feed_forward(c))
        self.cross_attn = CrossAttention(c)
        self.cross_layernorm = norm(c.hidden_size)

    def decode(self, x: Tensor, own: PagedKVCache, source: PagedKVCache, layer: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), own, layer)
        x = x + self.cross_attn(self.cross_layernorm(x), source, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


def feed_forward(c: T5Config) -> nn.Module:
    kind, _, name = c.feed_forward_proj.rpartition("-")
    gated = {"gelu": "gelu_new"}.get(name, name)
    return gated_mlp(c, gated) if kind == "gated" else plain_mlp(c, c.feed_forward_proj, bias=False)


class T5(nn.Module):
    def __init__(self, c: T5Config):
        norm, size = rms_norm(c.layer_norm_epsilon), c.hidden_size
        layers = [
            PreNormLayer(size, norm, attention(c, scale=1.0), feed_forward(c)) for _ in range(c.num_hidden_layers)
        ]
        self.output_scale = c.output_scale
        self.encoder = Transformer(c, layers, norm(c.hidden_size), None, None)
        self.encoder_biases = distance_biases(c, backward=False)
        self.decoder = nn.ModuleList([DecoderLayer(c) for _ in range(c.num_decoder_layers)])
        self.decoder_biases = distance_biases(c, backward=True)
        self.norm = norm(c.hidden_size)
        self.lm_head = None if c.tie_word_embeddings else nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.encoder.embed_tokens(input_ids)

    def encode(self, input_ids: Tensor, own: PagedKVCache, source: PagedKVCache, dtype: str) -> Tensor:
        own.biases = self.encoder_biases()
        hidden = self.encoder(self.embed(input_ids.reshape(1, *input_ids.shape)).astype(dtype), [own])
        for i, layer in enumerate(self.decoder):
            layer.cross_attn.store(hidden, source, i)
        return hidden

    def forward(self, x_BSD: Tensor, own: TargetCache, source: PagedKVCache) -> Tensor:
        own.biases, source.lengths = self.decoder_biases(), own.source_lengths
        for i, layer in enumerate(self.decoder):
            x_BSD = layer.decode(x_BSD, own, source, i)
        return self.norm(x_BSD)

    def logits(self, x_BSD: Tensor) -> Tensor:
        head = self.lm_head or self.encoder.embed_tokens.lm_head_forward
        return head(x_BSD * self.output_scale if self.output_scale != 1 else x_BSD)


def weights(c: T5Config) -> WeightMap:
    m = WeightMap()
    m.either("encoder.embed_tokens", "shared", "encoder.embed_tokens", "decoder.embed_tokens")
    for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"):
        m.tied(f"{name}.weight")
    if c.tie_word_embeddings:
        m.tied("lm_head.weight")
    m.rename("encoder.norm", "encoder.final_layer_norm")
    m.rename("norm", "decoder.final_layer_norm")
    gated = c.feed_forward_proj.startswith("gated")
    for part in ("encoder", "decoder"):
        m.rename(f"{part}_biases", f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias")
    for i in range(c.num_hidden_layers):
        _layer(m, f"encoder.layers.{i}", f"encoder.block.{i}.layer", is_decoder=False, gated=gated)
    for i in range(c.num_decoder_layers):
        _layer(m, f"decoder.{i}", f"decoder.block.{i}.layer", is_decoder=True, gated=gated)
    return m


def _layer(m: WeightMap, layer: str, source: str, *, is_decoder: bool, gated: bool) -> None:
    m.concat(f"{layer}.self_attn.qkv_proj", [f"{source}.0.{name}" for name in QKV])
    m.rename(f"{layer}.self_attn.o_proj", f"{source}.0.SelfAttention.o")
    m.rename(f"{layer}.input_layernorm", f"{source}.0.layer_norm")
    if is_decoder:
        cross = f"{source}.1.EncDecAttention"
        m.rename(f"{layer}.cross_attn.q_proj", f"{cross}.q")
        m.concat(f"{layer}.cross_attn.kv_proj", [f"{cross}.k", f"{cross}.v"])
        m.rename(f"{layer}.cross_attn.o_proj", f"{cross}.o")
        m.rename(f"{layer}.cross_layernorm", f"{source}.1.layer_norm")
        m.unused(f"{cross}.relative_attention_bias.weight")
    last = f"{source}.{2 if is_decoder else 1}"
    m.rename(f"{layer}.post_attention_layernorm", f"{last}.layer_norm")
    m.rename(f"{layer}.mlp.down_proj", f"{last}.DenseReluDense.wo")
    if gated:
        m.concat(f"{layer}.mlp.gate_up_proj", [f"{last}.DenseReluDense.wi_0", f"{last}.DenseReluDense.wi_1"])
    else:
        m.rename(f"{layer}.mlp.up_proj", f"{last}.DenseReluDense.wi")


def _variant(config: Mapping[str, Any]) -> str | None:
    return "t5_encoder" if config.get("architectures") == ["T5EncoderModel"] else None


TINY = T5Config(**{**tiny.SIZES, "num_key_value_heads": 4})
ARCHITECTURE = Architecture(
    "t5",
    T5Config,
    T5,
    weights,
    TINY,
    states=encoder_decoder.states,
    entry_points=encoder_decoder.entry_points,
    variant=_variant,
)
