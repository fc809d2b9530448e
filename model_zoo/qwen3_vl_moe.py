"""Qwen3-VL with experts: Qwen3-MoE instead of Qwen3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import qwen3_moe, qwen3_vl, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.qwen3_moe import Qwen3MoeConfig
from model_zoo.qwen3_vl import SMALL, DeepCausalLM, Mergers, Qwen3VLConfig, image_weights
from model_zoo.vision import VisionLanguageModel
from model_zoo.weight_expr import CheckpointTensor, Oriented
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names
from quantization.rewrite import Exceptions


@dataclass(frozen=True, kw_only=True)
class Qwen3VLMoeConfig(Qwen3VLConfig, Qwen3MoeConfig):
    model_type: ClassVar[str] = "qwen3_vl_moe"
    norm_topk_prob: bool = True


def model(c: Qwen3VLMoeConfig) -> VisionLanguageModel:
    return VisionLanguageModel(qwen3_moe.model(c, DeepCausalLM), qwen3_vl.tower(c.tower), Mergers(c.tower))


def weights(c: Qwen3VLMoeConfig) -> WeightMap:
    """Expert weights are [E, in, out] in published checkpoints, and [E, out, in] in those of transformers 5."""
    text, inner = llama_names(c, gated=False), c.moe_intermediate_size
    shapes = {"gate_up_proj": (2 * inner, c.hidden_size), "down_proj": (c.hidden_size, inner)}
    for layer in text.layers(LAYER, c.num_hidden_layers):
        for name, shape in shapes.items():
            stored = Oriented((CheckpointTensor(f"{layer}.mlp.experts.{name}"),), (c.num_experts, *shape))
            text.rename(f"{layer}.mlp.moe_{name}.weight", stored)
    m = vision.within_parts(text)
    image_weights(m, c.tower)
    return m


TINY = Qwen3VLMoeConfig(
    **tiny.SIZES,
    vision_config=SMALL,
    image_token_id=7,
    mrope_section=(4, 3, 3),
    moe_intermediate_size=36,
    num_experts=7,
    num_experts_per_tok=3,
)
ARCHITECTURE = Architecture(
    "qwen3_vl_moe",
    Qwen3VLMoeConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=Exceptions(vision.QUANTIZATION.final_fc, ("*.gate", *vision.QUANTIZATION.kept)),
)
