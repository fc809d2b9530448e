"""Weight map rules shared by several models; canonical names are those of ``model_zoo.transformer``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model_zoo.config import BaseConfig, DecoderConfig
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Slice
from model_zoo.weight_map import WeightMap

LAYER = "model.layers.{}"
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
LayerNames = Mapping[str, str | Sequence[str]]


def llama_names(c: DecoderConfig, *, gated: bool = True) -> WeightMap:
    """The weight map of a checkpoint with Llama's names: fuses q, k and v and, if gated, gate and up projections."""
    m = WeightMap()
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.concat(f"{layer}.self_attn.qkv_proj", [f"{layer}.{name}" for name in QKV])
        if gated:
            m.concat(f"{layer}.mlp.gate_up_proj", [f"{layer}.{name}" for name in GATE_UP])
        m.unused(f"{layer}.self_attn.rotary_emb.inv_freq")
    tie(m, c, "model.embed_tokens")
    return m


def shared_attention_rules(m: WeightMap, attention: str, stored: str) -> None:
    """Fuse the projections in ``stored``, a string of letters q, k and v; empty for a layer without own keys.

    Tensors of keys and values in layers that do not use them, which some checkpoints have, are unused.
    """
    if stored:
        m.concat(f"{attention}.qkv_proj", [f"{attention}.{letter}_proj" for letter in stored])
        return
    for name in ("k_proj", "v_proj", "k_norm", "v_norm"):
        m.unused(f"{attention}.{name}.*")


def renamed(
    c: BaseConfig,
    outer: Mapping[str, str],
    layer: str,
    inner: LayerNames | Sequence[LayerNames],
) -> WeightMap:
    """The weight map of a checkpoint with other names.

    outer: canonical name -> name in the checkpoint. layer: the checkpoint's pattern of a layer's prefix. inner:
    likewise for names inside of layers, or a mapping for each layer; several names are concatenated along axis 0.
    """
    m, layers = WeightMap(), c.num_hidden_layers
    for target, source in outer.items():
        m.rename(target, source)
    inners = [inner] * layers if isinstance(inner, Mapping) else inner
    for target, source, names in zip(m.layers(LAYER, layers), m.layers(layer, layers), inners, strict=True):
        for name, theirs in names.items():
            sources = [theirs] if isinstance(theirs, str) else theirs
            m.concat(f"{target}.{name}", [f"{source}.{s}" for s in sources])
    tie(m, c, outer.get("model.embed_tokens", "model.embed_tokens"))
    return m


def tie(m: WeightMap, c: BaseConfig, embedding: str) -> None:
    """Accept a stored output head that repeats the embedding if the config ties them."""
    if c.tie_word_embeddings:
        m.tied("lm_head.weight", to=f"{embedding}.weight")


def one_plus(m: WeightMap, c: BaseConfig, names: Sequence[str]) -> None:
    """Add 1 to the weights of some norms of each layer and of the last norm, which are stored as ``w - 1``."""
    for layer in m.layers(LAYER, c.num_hidden_layers):
        for name in names:
            m.offset(f"{layer}.{name}.weight", 1.0)
    m.offset("model.norm.weight", 1.0)


def grouped_qkv(c: DecoderConfig, source: str) -> Expr:
    """Queries, keys and values from rows in groups: the queries of a key/value head, its key, its value."""
    size, heads = c.head_dim, c.num_attention_heads // c.num_key_value_heads
    span = (heads + 2) * size

    def rows(first: int, count: int) -> list[Expr]:
        starts = (g * span + first * size for g in range(c.num_key_value_heads))
        return [Slice((CheckpointTensor(source),), 0, start, start + count * size) for start in starts]

    return Concat((*rows(0, heads), *rows(heads, 1), *rows(heads + 1, 1)))
