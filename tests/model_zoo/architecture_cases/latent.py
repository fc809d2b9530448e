"""Decoders with latent attention: dense, with experts, or mixed with delta nets."""

from __future__ import annotations

import transformers

from tests.model_zoo.architecture_cases.case import CONTEXT, GROUPS, LLAMA_LIKE, LONGROPE_OF_8, MINISTRAL, YARN, Case
from tests.model_zoo.checkpoint_forms import kimi_k2

MSCALE = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}
LATENT_LIKE = {
    **LLAMA_LIKE,
    "num_key_value_heads": 6,
    "q_lora_rank": 28,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 14,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "n_shared_experts": 2,
}
LATENT_DENSE = {k: v for k, v in LATENT_LIKE.items() if "expert" not in k and k != "moe_intermediate_size"}
INDEXER = {"index_topk": CONTEXT, "index_n_heads": 3, "index_head_dim": 14}
DENSE_FIRST = {"first_k_dense_replace": 1}

CASES = (
    Case(
        "deepseek_v2", transformers.DeepseekV2Config, {"q_lora_rank": None, "num_hidden_layers": 1}, sizes=LATENT_LIKE
    ),
    Case(
        "deepseek_v2",
        transformers.DeepseekV2Config,
        {"topk_method": "group_limited_greedy", **GROUPS, **DENSE_FIRST, "attention_bias": True},
        "groups-q-lora",
        LATENT_LIKE,
    ),
    Case(
        "deepseek_v3",
        transformers.DeepseekV3Config,
        {**GROUPS, **DENSE_FIRST, "rope_parameters": MSCALE},
        sizes=LATENT_LIKE,
        quantized=True,
    ),
    Case(
        "deepseek_v32",
        transformers.DeepseekV32Config,
        {**INDEXER, **GROUPS, **DENSE_FIRST, "rope_parameters": MSCALE},
        sizes=LATENT_LIKE,
    ),
    Case(
        "glm_moe_dsa",
        transformers.GlmMoeDsaConfig,
        {**INDEXER, **DENSE_FIRST, "index_topk_freq": 2, "index_skip_topk_offset": 1},
        sizes=LATENT_LIKE,
    ),
    Case("kimi_k2", transformers.DeepseekV3Config, {**GROUPS, **DENSE_FIRST}, sizes=LATENT_LIKE, to_checkpoint=kimi_k2),
    Case(
        "kimi_linear",
        transformers.KimiLinearConfig,
        {
            **GROUPS,
            "num_local_experts": 6,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_heads": 3,
            "linear_head_dim": 14,
        },
        sizes={k: v for k, v in LATENT_LIKE.items() if k != "n_routed_experts"},
    ),
    Case("glm4_moe_lite", transformers.Glm4MoeLiteConfig, sizes=LATENT_LIKE),
    Case(
        "mistral4",
        transformers.Mistral4Config,
        {**GROUPS, "num_hidden_layers": 1, "rope_parameters": MINISTRAL},
        sizes=LATENT_LIKE,
    ),
    Case("youtu", transformers.YoutuConfig, {"tie_word_embeddings": False}, sizes=LATENT_DENSE),
    Case("minicpm3", transformers.MiniCPM3Config, {"rope_parameters": LONGROPE_OF_8}, sizes=LATENT_DENSE),
)
