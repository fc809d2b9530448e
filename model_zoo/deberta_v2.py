"""DeBERTa v2 and v3: BERT with disentangled attention: content-to-position and position-to-content scores.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", and "DeBERTaV3".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from mlc_compiler.nn.disentangled import DisentangledAttention
from model_zoo import tiny
from model_zoo.architecture import encoder_architecture
from model_zoo.bert import NORMS
from model_zoo.config_check import unsupported
from model_zoo.encoder import EncoderConfig
from model_zoo.transformer import Encoder, NormedSumLayer, layer_norm, plain_mlp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, renamed

PREFIX = "deberta."
BOTH = {"c2p", "p2c"}
NO_NORM, LAYER_NORM = "none", "layer_norm"


@dataclass(frozen=True, kw_only=True)
class DebertaV2Config(EncoderConfig):
    """max_relative_positions: distances are clamped to it. position_buckets: table rows for distances to one side;
    distances above half of it share rows; 0: one row for each. norm_rel_ebd: norm of the table. share_att_key: whether
    the table is projected by the weights of queries and keys. By default, a call takes the tokens of one text.
    """

    model_type: ClassVar[str] = "deberta-v2"
    rope: ClassVar[None] = None
    ignored: ClassVar[frozenset[str]] = frozenset(
        "conv_act legacy pooler_dropout pooler_hidden_act pooler_hidden_size".split()
    )
    layer_norm_eps: float = 1e-7
    hidden_act: str = "gelu"
    relative_attention: bool = False
    position_biased_input: bool = True
    pos_att_type: Sequence[str] | None = None
    share_att_key: bool = False
    norm_rel_ebd: str = NO_NORM
    max_relative_positions: int = 0
    position_buckets: int | None = None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        values = {k: v for k, v in raw.items() if not (k in ("max_relative_positions", "position_buckets") and v == -1)}
        if isinstance(kinds := values.get("pos_att_type"), str):
            values["pos_att_type"] = [kind.strip() for kind in kinds.lower().split("|")]
        if values.get("embedding_size") == values.get("hidden_size"):
            values.pop("embedding_size", None)
        return super().from_hf(values)

    def __post_init__(self) -> None:
        self._fill("max_relative_positions", self.context_window_size)
        self._fill("prefill_chunk_size", self.context_window_size)
        super().__post_init__()
        object.__setattr__(self, "pos_att_type", tuple(self.pos_att_type or ()))
        if not self.relative_attention or set(self.pos_att_type or ()) != BOTH:
            given = self.pos_att_type if self.relative_attention else "relative_attention False"
            raise unsupported("pos_att_type", given, "c2p and p2c, with relative_attention")
        if self.position_biased_input:
            raise unsupported("position_biased_input", True, "False")
        if self.norm_rel_ebd not in (NO_NORM, LAYER_NORM):
            raise unsupported("norm_rel_ebd", self.norm_rel_ebd, f"{NO_NORM} or {LAYER_NORM}")

    @property
    def side(self) -> int:
        """Rows of the table for distances to one side."""
        return self.position_buckets or self.max_relative_positions

    @property
    def rows(self) -> np.ndarray:
        """The row of the table for each distance of two tokens of a text, see ``DisentangledAttention``."""
        distance = np.arange(1 - self.context_window_size, self.context_window_size)
        if self.position_buckets:
            distance = _buckets(distance, self.position_buckets, self.max_relative_positions)
        return np.clip(distance + self.side, 0, 2 * self.side - 1).astype(np.int32)


def _buckets(distance: np.ndarray, count: int, farthest: int) -> np.ndarray:
    """Bucket distances: one bucket each up to ``count / 2``, logarithmic beyond ("DeBERTaV3", section 2.2)."""
    half = np.float32(count // 2)
    magnitude = np.maximum(np.abs(distance), half - 1).astype(np.float32)
    share = np.log(magnitude / half) / np.log((np.float32(farthest) - 1) / half)
    far = np.sign(distance) * (np.ceil(share * (half - 1)) + half)
    return np.where(np.abs(distance) <= half, distance, far).astype(np.int64)


def model(c: DebertaV2Config) -> Encoder:
    norm, rows = layer_norm(c.layer_norm_eps), c.rows

    def layer() -> NormedSumLayer:
        attention = DisentangledAttention(c.hidden_size, c.num_attention_heads, 2 * c.side, rows)
        return NormedSumLayer(c.hidden_size, norm, attention, plain_mlp(c, c.hidden_act))

    return Encoder(c, [layer() for _ in range(c.num_hidden_layers)], embedding_norm=norm(c.hidden_size))


def weights(c: DebertaV2Config) -> WeightMap:
    """The projections of the table of positions do not depend on the text, and are computed at conversion."""
    embeddings, layers = f"{PREFIX}embeddings", f"{PREFIX}encoder.layer.{{}}"
    outer = {"model.embed_tokens": f"{embeddings}.word_embeddings", "model.embed_norm": f"{embeddings}.LayerNorm"}
    if c.type_vocab_size:
        outer["token_types"] = f"{embeddings}.token_type_embeddings"
    inner = {
        "self_attn.qkv_proj": [f"attention.self.{name}_proj" for name in ("query", "key", "value")],
        "self_attn.o_proj": "attention.output.dense",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
        **NORMS,
    }
    m = renamed(c, outer, layers, inner)
    m.optional_prefix(PREFIX)
    table = [f"{PREFIX}encoder.rel_embeddings.weight"]
    if c.norm_rel_ebd == LAYER_NORM:
        table += [f"{PREFIX}encoder.LayerNorm.{name}" for name in ("weight", "bias")]
    project, stem = _projection(c), "" if c.share_att_key else "pos_"
    for ours, theirs in zip(m.layers(LAYER, c.num_hidden_layers), m.layers(layers, c.num_hidden_layers), strict=True):
        for name in ("key", "query"):
            product = [f"{theirs}.attention.self.{stem}{name}_proj.{part}" for part in ("weight", "bias")]
            m.computed(f"{ours}.self_attn.pos_{name}", [*product, *table], project)
    for unused in ("cls", "lm_predictions", "mask_predictions", "pooler", f"{embeddings}.position_embeddings"):
        m.unused(f"{unused}.*")
    m.unused(f"{embeddings}.position_ids")
    return m


def _projection(c: DebertaV2Config) -> Callable[..., np.ndarray]:
    """The projection (weight [D, D], bias [D], table [>= P, D], its norm) -> float32 [heads, P, elements of a head]."""

    def position_products(weight: np.ndarray, bias: np.ndarray, table: np.ndarray, *norm: np.ndarray) -> np.ndarray:
        weight, bias, x, *norms = (a.astype(np.float32) for a in (weight, bias, table[: 2 * c.side], *norm))
        if norms:
            centred = x - x.mean(axis=1, keepdims=True)
            x = centred / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + c.layer_norm_eps)
            x = x * norms[0] + norms[1]
        return (x @ weight.T + bias).reshape(len(x), c.num_attention_heads, -1).transpose(1, 0, 2)

    return position_products


SIZES: dict[str, Any] = {**tiny.SIZES, "num_key_value_heads": 4, "head_dim": 25}
TINY = DebertaV2Config(
    **SIZES,
    relative_attention=True,
    position_biased_input=False,
    pos_att_type=("c2p", "p2c"),
    share_att_key=True,
    norm_rel_ebd=LAYER_NORM,
    position_buckets=20,
)
ARCHITECTURE = encoder_architecture(DebertaV2Config, model, weights, TINY)
