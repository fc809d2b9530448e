"""Baichuan 1 and 2: Llama with a fused weight for queries, keys and values.

The 13B models have ALiBi instead of RoPE; in Baichuan 2, rows of the output head are normalized to length 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from mlc_compiler.nn.attention import alibi_slopes
from mlc_errors import UnsupportedError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.rope import RopeParameters
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_expr import CheckpointTensor, UnitRows
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, renamed

ALIBI, ROPE = "alibi", "rope"
ALIBI_HIDDEN_SIZE = 5120
NORMALIZED_VOCABULARY = 125696


@dataclass(frozen=True, kw_only=True)
class BaichuanConfig(DecoderConfig):
    """position_embedding: alibi or rope; norm_head: whether rows of the output head are normalized.

    Published files have neither key: defaults follow from the hidden size (13B models) and the vocabulary (Baichuan 2).
    """

    model_type: ClassVar[str] = "baichuan"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"context_window_size": ("model_max_length",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"gradient_checkpointing_enable", "z_loss_weight"})
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    position_embedding: str = ""
    norm_head: bool | None = None

    def __post_init__(self) -> None:
        self._fill("position_embedding", ALIBI if self.hidden_size == ALIBI_HIDDEN_SIZE else ROPE)
        object.__setattr__(self, "position_embedding", self.position_embedding.lower())
        if self.norm_head is None:
            object.__setattr__(self, "norm_head", self.vocab_size == NORMALIZED_VOCABULARY)
        if self.position_embedding not in (ALIBI, ROPE):
            raise UnsupportedError(
                f"position_embedding: got {self.position_embedding[:80]!r}; expected {ALIBI} or {ROPE}",
                where=["config.json"],
            )
        super().__post_init__()

    @cached_property
    def rope(self) -> RopeParameters | None:
        if self.position_embedding == ALIBI:
            return None
        return RopeParameters.from_hf(self.head_dim, self.rope_theta, self.rope_scaling, self.context_window_size)


def model(c: BaichuanConfig) -> CausalLM:
    slopes = alibi_slopes(c.num_attention_heads) if c.position_embedding == ALIBI else None
    return pre_norm_model(
        c, rms_norm(c.rms_norm_eps), lambda: attention(c, slopes=slopes), lambda: gated_mlp(c, c.hidden_act)
    )


def weights(c: BaichuanConfig) -> WeightMap:
    inner = {"self_attn.qkv_proj": "self_attn.W_pack", "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj")}
    m = renamed(c, {}, LAYER, inner)
    m.unused("model.layers.*.self_attn.rotary_emb.inv_freq")
    if c.norm_head:
        m.rename("lm_head.weight", UnitRows((CheckpointTensor("lm_head.weight"),)))
    return m


TINY = BaichuanConfig(**{**tiny.SIZES, "num_key_value_heads": 4}, position_embedding=ALIBI, norm_head=True)
ARCHITECTURE = Architecture("baichuan", BaichuanConfig, model, weights, tiny=TINY)
