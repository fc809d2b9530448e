"""Qwen3.5 and 3.6: Qwen3-Next with separate input projections, dense or with experts, and Qwen3-VL's tower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from mlc_compiler import nn
from model_zoo import mtp, qwen3_vl, vision
from model_zoo.architecture import Architecture
from model_zoo.delta_net_layers import delta_nets
from model_zoo.qwen2_vl import QwenVLFields
from model_zoo.qwen3_next import EXCEPTIONS, EXPERTS, SIZES, QwenDeltaNetConfig, common_weights
from model_zoo.qwen3_next import model as text_model
from model_zoo.vision import ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions

QUANTIZATION = Exceptions(vision.QUANTIZATION.final_fc, (*EXCEPTIONS.kept, *vision.QUANTIZATION.kept))


@dataclass(frozen=True, kw_only=True)
class Qwen35TextConfig(QwenDeltaNetConfig):
    model_type: ClassVar[str] = "qwen3_5_text"


@dataclass(frozen=True, kw_only=True)
class Qwen35MoeTextConfig(QwenDeltaNetConfig):
    model_type: ClassVar[str] = "qwen3_5_moe_text"
    num_experts: int | None = 256
    num_experts_per_tok: int = 8


@dataclass(frozen=True, kw_only=True)
class TowerConfig(qwen3_vl.TowerConfig):
    deepstack_visual_indexes: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class WithImages(QwenVLFields):
    """Additional fields; must precede the decoder's base class. vision_config: None for the decoder alone."""

    tower_config: ClassVar[type[Any]] = TowerConfig
    ignored: ClassVar[frozenset[str]] = QwenVLFields.ignored | QwenDeltaNetConfig.ignored
    image_token_id: int = 248056
    mrope_section: Sequence[int] = (11, 11, 10)

    @cached_property
    def vision(self) -> TowerConfig | None:  # type: ignore[override]
        return None if self.vision_config is None else TowerConfig.from_hf(self.vision_config)

    @property
    def rotary_axes(self) -> tuple[int, ...]:
        return qwen3_vl.interleaved_axes(self.mrope_section) if self.vision else ()

    @property
    def images(self) -> ImageInput | None:  # type: ignore[override]
        return super().images if self.vision else None


@dataclass(frozen=True, kw_only=True)
class Qwen35Config(WithImages, Qwen35TextConfig):
    model_type: ClassVar[str] = "qwen3_5"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vision:
            self.check_parts(self.hidden_size, self.rotary_dim)


@dataclass(frozen=True, kw_only=True)
class Qwen35MoeConfig(WithImages, Qwen35MoeTextConfig):
    model_type: ClassVar[str] = "qwen3_5_moe"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vision:
            self.check_parts(self.hidden_size, self.rotary_dim)


def model(c: Any) -> VisionLanguageModel:
    """Build the model. c: a ``Qwen35Config`` or ``Qwen35MoeConfig``."""
    if c.vision is None:
        return VisionLanguageModel(text_model(c), None, None)
    projector: nn.Module = qwen3_vl.Mergers(c.vision)
    return VisionLanguageModel(text_model(c), qwen3_vl.tower(c.vision), projector)


def decoder_weights(c: QwenDeltaNetConfig) -> WeightMap:
    m = common_weights(c)
    for ours, theirs in delta_nets(c):
        m.concat(f"{ours}.in_proj", [f"{theirs}.in_proj_qkv", f"{theirs}.in_proj_z"])
        m.concat(f"{ours}.in_proj_ba", [f"{theirs}.in_proj_b", f"{theirs}.in_proj_a"])
    return m


def text_weights(c: QwenDeltaNetConfig) -> WeightMap:
    """The weight map of the decoder alone; also accepts a checkpoint of the whole model."""
    m = decoder_weights(c)
    m.other_prefix("model.", "model.language_model.")
    m.unused("model.visual.*")
    return m


def weights(c: Any) -> WeightMap:
    """The weight map. c: a ``Qwen35Config`` or ``Qwen35MoeConfig``."""
    m = vision.within_parts(decoder_weights(c))
    if c.vision is None:
        m.unused("model.visual.*")
    else:
        qwen3_vl.image_weights(m, c.vision)
    return m


def _text(config: type[QwenDeltaNetConfig], **sizes: Any) -> Architecture:
    return Architecture(
        config.model_type, config, text_model, text_weights, tiny=config(**SIZES, **sizes), quantization=EXCEPTIONS
    )


def _with_images(config: type[Qwen35Config] | type[Qwen35MoeConfig], **sizes: Any) -> Architecture:
    rotation: dict[str, Any] = {"partial_rotary_factor": 0.6, "mrope_section": (2, 2, 2), "image_token_id": 7}
    tower = {key: value for key, value in qwen3_vl.SMALL.items() if key != "deepstack_visual_indexes"}
    return Architecture(
        config.model_type,
        config,
        model,
        weights,
        tiny=config(**SIZES, **sizes, **rotation, vision_config=tower),
        entry_points=vision.entry_points,
        images=lambda c: c.images,
        quantization=QUANTIZATION,
    )


TEXT = _text(Qwen35TextConfig)
ARCHITECTURE = _with_images(Qwen35Config)
MOE_TEXT = _text(Qwen35MoeTextConfig, **EXPERTS)
MOE = _with_images(Qwen35MoeConfig, **EXPERTS)
TEXT_MTP = mtp.head(TEXT, mtp.QWEN)
MOE_TEXT_MTP = mtp.head(MOE_TEXT, mtp.QWEN)
MTP = mtp.head(replace(ARCHITECTURE, model=text_model, weights=decoder_weights), mtp.QWEN)
MOE_MTP = mtp.head(replace(MOE, model=text_model, weights=decoder_weights), mtp.QWEN)
