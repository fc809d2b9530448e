"""Phi-3, 3.5, 4: Llama with LongRoPE and partial RoPE; checkpoints have fused QKV and gate/up weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.rope import RopeParameters
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import tie


@dataclass(frozen=True, kw_only=True)
class Phi3Config(DecoderConfig):
    """max_position_embeddings: the length for which RoPE is scaled.

    LongRoPE's long factors apply to all texts when the context is longer than ``original_max_position_embeddings``.
    """

    model_type: ClassVar[str] = "phi3"
    rms_norm_eps: float = 1e-5
    hidden_act: str = "silu"
    sliding_window: int | None = None  # type: ignore[misc]  # a field here, a class constant of the base
    partial_rotary_factor: float = 1.0  # type: ignore[misc]  # likewise
    original_max_position_embeddings: int = 4096
    max_position_embeddings: int = 4096

    @cached_property
    def rope(self) -> RopeParameters | None:
        original = self.original_max_position_embeddings
        scaling = dict(self.rope_scaling or {})
        if scaling:
            lengths = {"original_max_position_embeddings": original, "factor": self.max_position_embeddings / original}
            scaling = {**lengths, **scaling}
        return RopeParameters.from_hf(self.rotary_dim, self.rope_theta, scaling, self.context_window_size)


def model(c: Phi3Config) -> CausalLM:
    return pre_norm_model(c, rms_norm(c.rms_norm_eps), lambda: attention(c), lambda: gated_mlp(c, c.hidden_act))


def weights(c: Phi3Config) -> WeightMap:
    m = WeightMap()
    tie(m, c, "model.embed_tokens")
    return m


TINY = Phi3Config(**tiny.SIZES, partial_rotary_factor=0.6)
ARCHITECTURE = Architecture("phi3", Phi3Config, model, weights, tiny=TINY)
