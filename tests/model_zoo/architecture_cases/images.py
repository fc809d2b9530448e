"""Models that take images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import transformers
from transformers import PretrainedConfig

from tests.model_zoo.architecture_cases.case import (
    COMMON,
    EXPERTS,
    HEADS,
    IMAGE_TOKEN,
    LLAMA_LIKE,
    MINISTRAL,
    MIXED,
    WINDOWS,
    Case,
)
from tests.model_zoo.architecture_cases.experts import LLAMA4
from tests.model_zoo.architecture_cases.recurrent import DELTA_NET, SHARED_EXPERT
from tests.model_zoo.checkpoint_forms import with_experts_by_input, with_mtp
from tests.model_zoo.phi3_v_reference import Phi3VConfig

PHI3_V = {
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 20,
        "intermediate_size": 28,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": 336,
        "patch_size": 84,
    },
    "img_processor": {"name": "clip_vision_model", "image_dim_out": 20, "num_img_tokens": 4},
    "embd_layer": {"embedding_cls": "image", "hd_transform_order": "sub_glb", "use_hd_transform": True},
}
TOWER = {
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
}


LLAMA4_TOWER = {
    **TOWER,
    "hidden_size": 48,
    "intermediate_size": 192,
    **dict.fromkeys(("projector_input_dim", "projector_output_dim", "vision_output_dim"), 52),
}


def with_tower(
    text: type[PretrainedConfig], tower: type[PretrainedConfig], token: str = "image_token_index", **options: Any
) -> dict[str, Any]:
    """The config options of a model that takes images. options: of the text model."""
    return {
        "text_config": text(**{**COMMON, **LLAMA_LIKE, **options}),
        "vision_config": tower(**TOWER),
        token: IMAGE_TOKEN,
    }


SIGLIP2 = {**{key: value for key, value in TOWER.items() if key != "image_size"}, "num_patches": 25}
IMAGES_OF_ANY_SIZE: Mapping[str, Any] = {"sizes": {}, "grids": [(2, 3), (3, 1)]}


def qwen_vl(text: Mapping[str, Any] | None = None, **tower: Any) -> dict[str, Any]:
    """The config options of a model with positions in time, height and width. text: options of the text model, which
    has ``head_dim`` 12."""
    rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2] if text else [1, 2, 2]}
    names = ("image_token_id", "vision_start_token_id", "vision_end_token_id", "video_token_id")
    return {
        "text_config": {**COMMON, **LLAMA_LIKE, **(text or {}), "rope_parameters": rotation},
        "vision_config": {"depth": 2, "num_heads": 4, "patch_size": 7, **tower},
        **{name: IMAGE_TOKEN + i for i, name in enumerate(names)},
    }


def qwen3_5(text: Mapping[str, Any]) -> dict[str, Any]:
    """The config options of a Qwen3.5 with delta nets, RoPE on half of a head (a third per axis), and a vision
    tower."""
    tower = {"hidden_size": 48, "intermediate_size": 60, "out_hidden_size": 60, "num_position_embeddings": 25}
    options = qwen_vl(text={**DELTA_NET, **text}, **tower)
    rotation = {"partial_rotary_factor": 0.5, "mrope_section": [1, 1, 1]}
    options["text_config"]["rope_parameters"] = {**options["text_config"]["rope_parameters"], **rotation}
    return options


CASES = (
    Case(
        "llava",
        transformers.LlavaConfig,
        with_tower(transformers.LlamaConfig, transformers.CLIPVisionConfig),
        sizes={},
        image_tokens=16,
    ),
    Case(
        "llava",
        transformers.LlavaConfig,
        {
            **with_tower(transformers.MistralConfig, transformers.SiglipVisionConfig, sliding_window=7),
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        "mistral-siglip",
        sizes={},
        image_tokens=16,
    ),
    Case(
        "gemma3",
        transformers.Gemma3Config,
        {
            **with_tower(
                transformers.Gemma3TextConfig,
                transformers.SiglipVisionConfig,
                **{**WINDOWS, "layer_types": MIXED, "query_pre_attn_scalar": 9},
            ),
            "mm_tokens_per_image": 4,
        },
        sizes={},
        norms_around_zero=True,
        image_tokens=4,
    ),
    *(
        Case(
            name,
            config,
            with_tower(transformers.LlamaConfig, tower, "image_token_id", tie_word_embeddings=tied)
            | {"tie_word_embeddings": tied},
            sizes={},
            image_tokens=4,
        )
        for name, config, tower, tied in (
            ("idefics3", transformers.Idefics3Config, transformers.Idefics3VisionConfig, False),
            ("smolvlm", transformers.SmolVLMConfig, transformers.SmolVLMVisionConfig, True),
        )
    ),
    Case(
        "qwen2_vl", transformers.Qwen2VLConfig, qwen_vl(embed_dim=48, hidden_size=60, mlp_ratio=2), **IMAGES_OF_ANY_SIZE
    ),
    Case(
        "qwen2_5_vl",
        transformers.Qwen2_5_VLConfig,
        qwen_vl(hidden_size=48, intermediate_size=60, out_hidden_size=60, window_size=28, fullatt_block_indexes=[1]),
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "qwen3_vl",
        transformers.Qwen3VLConfig,
        qwen_vl(
            depth=3,
            hidden_size=48,
            intermediate_size=60,
            out_hidden_size=60,
            num_position_embeddings=25,
            deepstack_visual_indexes=[0, 1],
            text=HEADS,
        ),
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "mistral3",
        transformers.Mistral3Config,
        {
            "text_config": {
                **COMMON,
                **LLAMA_LIKE,
                **HEADS,
                "model_type": "ministral3",
                "rope_parameters": MINISTRAL,
                "tie_word_embeddings": False,
            },
            "vision_config": {**TOWER, "model_type": "pixtral", "hidden_size": 48},
            "image_token_index": IMAGE_TOKEN,
            "tie_word_embeddings": False,
        },
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "lfm2_vl",
        transformers.Lfm2VlConfig,
        {
            "text_config": {
                **COMMON,
                **LLAMA_LIKE,
                "model_type": "lfm2",
                "layer_types": ["conv", "full_attention"],
                "block_multiple_of": 4,
            },
            "vision_config": {**SIGLIP2, "model_type": "siglip2_vision_model"},
            "projector_hidden_size": 52,
            "image_token_id": IMAGE_TOKEN,
        },
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "qwen3_5",
        transformers.Qwen3_5Config,
        qwen3_5({"layer_types": None, "full_attention_interval": 2}),
        norms_around_zero=True,
        to_checkpoint=with_mtp,
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "qwen3_5_moe",
        transformers.Qwen3_5MoeConfig,
        qwen3_5(SHARED_EXPERT),
        norms_around_zero=True,
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "llama4",
        transformers.Llama4Config,
        {
            "text_config": {
                **COMMON,
                **LLAMA_LIKE,
                **LLAMA4,
                "num_experts_per_tok": 2,
                "no_rope_layers": [1, 0],
                "use_qk_norm": False,
            },
            "vision_config": LLAMA4_TOWER,
            "image_token_index": IMAGE_TOKEN,
        },
        sizes={},
        image_tokens=4,
    ),
    Case(
        "qwen3_vl_moe",
        transformers.Qwen3VLMoeConfig,
        qwen_vl(
            hidden_size=48,
            intermediate_size=60,
            out_hidden_size=60,
            num_position_embeddings=25,
            deepstack_visual_indexes=[0],
            text={**HEADS, **EXPERTS},
        ),
        to_checkpoint=with_experts_by_input,
        **IMAGES_OF_ANY_SIZE,
    ),
    Case("phi3_v", Phi3VConfig, PHI3_V),
)
