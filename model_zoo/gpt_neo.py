"""GPT-Neo: GPT-2 with sliding windows in some layers, unscaled scores, and separate query, key and value weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_errors import MLCError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import AttentionKind, DecoderConfig
from model_zoo.transformer import (
    CausalLM,
    LearnedPositions,
    PreNormLayer,
    attention,
    layer_norm,
    plain_mlp,
)
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed

KINDS = ("global", "local")


@dataclass(frozen=True, kw_only=True)
class GPTNeoConfig(DecoderConfig):
    """attention_layers: one of ``KINDS`` for each layer. attention_types: pairs of a list of kinds and its number of
    repetitions, used if attention_layers is missing. window_size: positions that a token of a local layer attends to.
    max_position_embeddings: rows of the table of positions.
    """

    model_type: ClassVar[str] = "gpt_neo"
    rope: ClassVar[None] = None
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "num_attention_heads": ("num_heads",),
        "num_hidden_layers": ("num_layers",),
    }
    ignored: ClassVar[frozenset[str]] = frozenset({"embed_dropout"})
    intermediate_size: int = 0
    max_position_embeddings: int = 0
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_new"
    window_size: int = 256
    attention_layers: Sequence[str] | None = None
    attention_types: Sequence[Any] | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", 4 * self.hidden_size)
        self._fill("max_position_embeddings", self.context_window_size)
        self.check_positions(self.max_position_embeddings)
        kinds = _expanded(self.attention_types) if self.attention_layers is None else self.attention_layers
        if len(kinds) != self.num_hidden_layers or not set(kinds) <= set(KINDS):
            raise MLCError(
                f"attention_types: got {len(kinds)} layers of kinds {', '.join(sorted(set(kinds)))}; expected "
                f"{self.num_hidden_layers} layers of kinds {' or '.join(KINDS)}",
                where=["config.json"],
            )
        object.__setattr__(self, "attention_layers", tuple(kinds))
        object.__setattr__(self, "attention_types", None)
        super().__post_init__()

    @property
    def attention_kinds(self) -> tuple[AttentionKind, ...]:
        kinds = {"global": AttentionKind(), "local": AttentionKind("local", self.window_size)}
        return tuple(kinds[name] for name in self.attention_layers or ())


def _expanded(types: Sequence[Any] | None) -> list[str]:
    """``[[["global", "local"], 2]]`` -> global, local, global, local."""
    try:
        return [str(kind) for kinds, count in types or () for kind in list(kinds) * int(count)]
    except (TypeError, ValueError):
        raise MLCError(
            f"attention_types: got {str(types)[:80]}; expected pairs of a list of kinds and a number",
            where=["config.json"],
        ) from None


def model(c: GPTNeoConfig) -> CausalLM:
    norm = layer_norm(c.layer_norm_epsilon)
    layers = [
        PreNormLayer(c.hidden_size, norm, attention(c, out_bias=True, scale=1.0), plain_mlp(c, c.activation_function))
        for _ in range(c.num_hidden_layers)
    ]
    positions = LearnedPositions(c.max_position_embeddings, c.hidden_size)
    return CausalLM(c, layers, norm(c.hidden_size), positions=positions)


def weights(c: GPTNeoConfig) -> WeightMap:
    outer = {
        "model.embed_tokens": "transformer.wte",
        "model.embed_positions": "transformer.wpe",
        "model.norm": "transformer.ln_f",
    }
    inner = {
        "input_layernorm": "ln_1",
        "self_attn.qkv_proj": [f"attn.attention.{letter}_proj" for letter in "qkv"],
        "self_attn.o_proj": "attn.attention.out_proj",
        "post_attention_layernorm": "ln_2",
        "mlp.up_proj": "mlp.c_fc",
        "mlp.down_proj": "mlp.c_proj",
    }
    m = renamed(c, outer, "transformer.h.{}", inner)
    for buffer in ("bias", "masked_bias"):
        m.unused(f"transformer.h.*.attn.attention.{buffer}")
    m.optional_prefix("transformer.")
    return m


SIZES = {**tiny.SIZES, "num_key_value_heads": 4, "head_dim": 25}
TINY = GPTNeoConfig(**SIZES, attention_layers=KINDS, window_size=21)
ARCHITECTURE = Architecture("gpt_neo", GPTNeoConfig, model, weights, tiny=TINY)
