"""Qwen3.5, text part: Qwen3-Next with its first products stored apart, dense or with experts.

``qwen3_5`` and ``qwen3_5_moe`` are the text parts of models that also take images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_errors import MLCError
from model_zoo.architecture import Architecture
from model_zoo.delta_net_layers import delta_nets
from model_zoo.qwen3_next import EXCEPTIONS, EXPERTS, SIZES, QwenDeltaNetConfig, common_weights, model
from model_zoo.weight_map import WeightMap

VISION_KEYS = frozenset("vision_config image_token_id video_token_id vision_start_token_id vision_end_token_id".split())


@dataclass(frozen=True, kw_only=True)
class Qwen35TextConfig(QwenDeltaNetConfig):
    model_type: ClassVar[str] = "qwen3_5_text"


@dataclass(frozen=True, kw_only=True)
class Qwen35MoeTextConfig(QwenDeltaNetConfig):
    model_type: ClassVar[str] = "qwen3_5_moe_text"
    num_experts: int | None = 256
    num_experts_per_tok: int = 8


class OfTextPart(QwenDeltaNetConfig):
    """Reads the configuration of the whole model."""

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        text = raw.get("text_config")
        if text is None:
            return super().from_hf(raw)
        if not isinstance(text, Mapping):
            raise MLCError("text_config: expected an object", where=["config.json"])
        outer = {key: value for key, value in raw.items() if key not in VISION_KEYS and key != "text_config"}
        tied = {key: outer[key] for key in ("tie_word_embeddings",) if key in outer}
        return super().from_hf({**outer, **text, **tied})


class Qwen35Config(OfTextPart, Qwen35TextConfig):
    model_type: ClassVar[str] = "qwen3_5"


class Qwen35MoeConfig(OfTextPart, Qwen35MoeTextConfig):
    model_type: ClassVar[str] = "qwen3_5_moe"


def weights(c: QwenDeltaNetConfig) -> WeightMap:
    m = common_weights(c)
    for ours, theirs in delta_nets(c):
        m.concat(f"{ours}.in_proj", [f"{theirs}.in_proj_qkv", f"{theirs}.in_proj_z"])
        m.concat(f"{ours}.in_proj_ba", [f"{theirs}.in_proj_b", f"{theirs}.in_proj_a"])
    m.other_prefix("model.", "model.language_model.")
    m.unused("model.visual.*")
    return m


def _architecture(config: type[QwenDeltaNetConfig], **sizes: Any) -> Architecture:
    return Architecture(
        config.model_type, config, model, weights, tiny=config(**SIZES, **sizes), quantization=EXCEPTIONS
    )


TEXT = _architecture(Qwen35TextConfig)
ARCHITECTURE = _architecture(Qwen35Config)
MOE_TEXT = _architecture(Qwen35MoeTextConfig, **EXPERTS)
MOE = _architecture(Qwen35MoeConfig, **EXPERTS)
