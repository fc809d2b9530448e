"""Decoders with a mixture of experts."""

from __future__ import annotations

import transformers

from tests.model_zoo.architecture_cases.case import (
    ALPHA,
    COMMON,
    EXPERTS,
    GROUPS,
    HEADS,
    LLAMA_LIKE,
    LONGROPE_OF_8,
    MIXED,
    MULTIPLIERS,
    WINDOWS,
    YARN,
    Case,
    rope,
)
from tests.model_zoo.checkpoint_forms import (
    STEP_TEXT,
    bailing_moe,
    bailing_moe_v2,
    deepseek,
    mimo_v2,
    step3p5,
    without_shared_gate,
)

LLAMA4 = {
    **HEADS,
    "intermediate_size": 20,
    "intermediate_size_mlp": 52,
    "num_local_experts": 6,
    "num_experts_per_tok": 1,
    "no_rope_layer_interval": 2,
    "attention_chunk_size": 7,
    "floor_scale": 4,
    "attn_scale": 0.5,
}
# transformers takes the short factors for all texts, unlike the published code
PHIMOE_ROPE = {
    **LONGROPE_OF_8,
    "short_mscale": 1.1,
    "long_mscale": 1.3,
    "short_factor": [1.5, 4.0, 9.0, 11.0, 2.0],
    "long_factor": [1.5, 4.0, 9.0, 11.0, 2.0],
}
ROUTED = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
MIMO = {
    **HEADS,
    "num_attention_heads": 8,
    "v_head_dim": 8,
    "sliding_window": 7,
    "layer_types": MIXED[::-1],
    "mlp_layer_types": ["dense", "sparse"],
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
}
MIMO_ROPE = {
    "rope_parameters": {
        kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.334}
        for kind, theta in (("full_attention", 5e3), ("sliding_attention", 1e4))
    }
}
STEP = {
    **WINDOWS,
    **STEP_TEXT,
    "n_routed_experts": 6,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
}
STEP_TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "mlp_ratio": 1.0}
MIXTRAL_LIKE = {"num_local_experts": 6, "num_experts_per_tok": 2}

CASES = (
    Case("qwen3_moe", transformers.Qwen3MoeConfig, {**HEADS, **EXPERTS, "norm_topk_prob": True}),
    Case(
        "gpt_oss",
        transformers.GptOssConfig,
        {**WINDOWS, "num_local_experts": 6, "num_experts_per_tok": 3, "rope_parameters": YARN, "swiglu_limit": 0.7},
    ),
    Case(
        "deepseek",
        transformers.Qwen2MoeConfig,
        {**EXPERTS, "qkv_bias": False, "mlp_only_layers": [0], "shared_expert_intermediate_size": 40},
        adapt=without_shared_gate,
        to_checkpoint=deepseek,
    ),
    Case("glm4_moe", transformers.Glm4MoeConfig, {**HEADS, **ROUTED, "use_qk_norm": True, "attention_bias": True}),
    Case("solar_open", transformers.SolarOpenConfig, {**HEADS, **ROUTED, "first_k_dense_replace": 0}),
    Case("dots1", transformers.Dots1Config, {**ROUTED, "sliding_window": 7, "max_window_layers": 1}),
    Case(
        "exaone_moe",
        transformers.ExaoneMoeConfig,
        {**EXPERTS, **GROUPS, "sliding_window": 7, "sliding_window_pattern": 2},
    ),
    Case(
        "bailing_moe",
        transformers.Qwen2MoeConfig,
        {**EXPERTS, "mlp_only_layers": [0], "shared_expert_intermediate_size": 40, "norm_topk_prob": True},
        adapt=without_shared_gate,
        to_checkpoint=bailing_moe,
    ),
    Case(
        "bailing_moe_v2",
        transformers.Glm4MoeConfig,
        {**HEADS, **ROUTED, **GROUPS, "use_qk_norm": True, **rope(partial_rotary_factor=0.5)},
        to_checkpoint=bailing_moe_v2,
    ),
    Case("mimo_v2_flash", transformers.MiMoV2FlashConfig, MIMO),
    Case("mimo_v2_flash", transformers.MiMoV2FlashConfig, {**MIMO, **MIMO_ROPE}, "published", to_checkpoint=mimo_v2),
    Case(
        "step3p5",
        transformers.Step3p7Config,
        {"text_config": {**COMMON, **LLAMA_LIKE, **STEP}, "vision_config": STEP_TOWER},
        sizes={},
        norms_around_zero=True,
        to_checkpoint=step3p5,
    ),
    Case("olmoe", transformers.OlmoeConfig, {"num_experts": 6, "num_experts_per_tok": 3}),
    Case("flex_olmo", transformers.FlexOlmoConfig, {"num_experts": 6, "num_experts_per_tok": 3}),
    Case("minimax_m2", transformers.MiniMaxM2Config, {**HEADS, **MIXTRAL_LIKE, **rope(partial_rotary_factor=0.5)}),
    Case(
        "phimoe",
        transformers.PhimoeConfig,
        {
            **MIXTRAL_LIKE,
            "attention_bias": True,
            "lm_head_bias": True,
            "router_jitter_noise": 0.2,
            "rope_parameters": PHIMOE_ROPE,
        },
    ),
    Case("granitemoe", transformers.GraniteMoeConfig, {**MULTIPLIERS, **MIXTRAL_LIKE, "attention_bias": True}),
    Case(
        "ernie4_5_moe",
        transformers.Ernie4_5_MoeConfig,
        {"moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": 20, "use_bias": True, "tie_word_embeddings": False},
    ),
    Case(
        "hunyuan_v1_moe",
        transformers.HunYuanMoEV1Config,
        {**HEADS, "num_experts": 6, "moe_topk": 3, "rope_parameters": ALPHA},
    ),
    Case("llama4_text", transformers.Llama4TextConfig, {**LLAMA4, "interleave_moe_layer_step": 2}),
    Case(
        "cohere2_moe",
        transformers.Cohere2MoeConfig,
        {
            **WINDOWS,
            "layer_types": ["full_attention", "sliding_attention"],
            "mlp_layer_types": ["dense", "sparse"],
            "logit_scale": 0.5,
            "prefix_dense_intermediate_size": 44,
            "intermediate_size": 20,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "num_shared_experts": 2,
        },
    ),
    Case("hy_v3", transformers.HYV3Config, {**HEADS, **EXPERTS}),
    Case(
        "afmoe",
        transformers.AfmoeConfig,
        {**WINDOWS, **EXPERTS, "layer_types": MIXED, "num_dense_layers": 1, "route_scale": 1.5, "mup_enabled": True},
    ),
)
