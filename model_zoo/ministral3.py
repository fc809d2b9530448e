"""Ministral 3, text: Mistral with YaRN and queries scaled by a function of their position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from mlc_compiler.nn.attention import Growth
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names

GROWTH_KEYS = frozenset({"llama_4_scaling_beta"})


@dataclass(frozen=True, kw_only=True)
class Ministral3Config(DecoderConfig):
    model_type: ClassVar[str] = "ministral3"
    scaling_keys: ClassVar[frozenset[str]] = GROWTH_KEYS
    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    hidden_act: str = "silu"
    sliding_window: int | None = None  # type: ignore[misc]  # a field here, a class constant of the base


def growth(c: DecoderConfig) -> Growth | None:
    """The growth of queries with their position, from ``rope_scaling``; None if it has none."""
    scaling = c.rope_scaling or {}
    length = scaling.get("original_max_position_embeddings") or c.context_window_size
    beta = scaling.get("llama_4_scaling_beta")
    return Growth(float(beta), float(length)) if beta else None


def model(c: Ministral3Config) -> CausalLM:
    attend = partial(attention, c, growth=growth(c))
    return pre_norm_model(c, rms_norm(c.rms_norm_eps), attend, lambda: gated_mlp(c, c.hidden_act))


SCALING = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
TINY = Ministral3Config(**tiny.SIZES, rope_scaling=SCALING)
ARCHITECTURE = Architecture("ministral3", Ministral3Config, model, llama_names, tiny=TINY)
