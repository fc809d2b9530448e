"""Ministral 3: Mistral with YaRN and queries that are scaled up with their position.

``mistral3`` is the text part, Mistral or Ministral 3, of models that also take images (Mistral Small 3.1 and 3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

from mlc_compiler.nn.attention import Growth
from mlc_errors import UnsupportedError
from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.config_forms import text_part
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names

OTHER_KEYS = frozenset(
    "vision_config image_token_index image_token_id projector_hidden_act vision_feature_layer spatial_merge_size "
    "multimodal_projector_bias".split()
)
TEXT_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": 4096, "rope_theta": 1e4, "rms_norm_eps": 1e-6},
    "ministral3": {},
}
"""What text_config leaves out, by its model_type: Hugging Face's defaults where they are not Ministral 3's."""


@dataclass(frozen=True, kw_only=True)
class Ministral3Config(DecoderConfig):
    model_type: ClassVar[str] = "ministral3"
    head_dim: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    hidden_act: str = "silu"
    sliding_window: int | None = None  # type: ignore[misc]  # a field here, a class constant of the base


def growth(c: DecoderConfig) -> Growth | None:
    """Of queries, by ``rope_scaling``; None where they do not grow."""
    scaling = c.rope_scaling or {}
    length = scaling.get("original_max_position_embeddings") or c.context_window_size
    beta = scaling.get("llama_4_scaling_beta")
    return Growth(float(beta), float(length)) if beta else None


@dataclass(frozen=True, kw_only=True)
class Mistral3Config(Ministral3Config):
    model_type: ClassVar[str] = "mistral3"

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        text = raw.get("text_config")
        kind = text.get("model_type", "mistral") if isinstance(text, Mapping) else "ministral3"
        if kind not in TEXT_DEFAULTS:
            raise UnsupportedError(
                f"text_config: got model_type {str(kind)[:80]!r}; mistral3 models have {' or '.join(TEXT_DEFAULTS)}",
                where=["config.json"],
            )
        tied = {key: raw[key] for key in ("tie_word_embeddings",) if key in raw}
        return super().from_hf({**TEXT_DEFAULTS[kind], **text_part(raw, OTHER_KEYS), **tied})


def model(c: Ministral3Config) -> CausalLM:
    attend = partial(attention, c, growth=growth(c))
    return pre_norm_model(c, rms_norm(c.rms_norm_eps), attend, lambda: gated_mlp(c, c.hidden_act))


def weights_of_text_part(c: Mistral3Config) -> WeightMap:
    m = llama_names(c)
    m.optional_prefix("language_model.")
    m.other_prefix("model.", "model.language_model.")
    for prefix in ("", "model."):
        m.unused(f"{prefix}vision_tower.*")
        m.unused(f"{prefix}multi_modal_projector.*")
    return m


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
TINY_TEXT = Mistral3Config(**tiny.SIZES, rope_scaling=SCALING)
MISTRAL3 = Architecture("mistral3", Mistral3Config, model, weights_of_text_part, tiny=TINY_TEXT)
