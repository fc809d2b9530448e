"""Models with recurrent states in some or all layers."""

from __future__ import annotations

import transformers

from tests.model_zoo.architecture_cases.case import CONTEXT, EXPERTS, HEADS, MULTIPLIERS, Case
from tests.model_zoo.rwkv_reference import Rwkv5Config, Rwkv6Config, Rwkv7Config

MAMBA2 = {"mamba_n_heads": 6, "mamba_d_state": 10, "mamba_chunk_size": 8}
HYBRID = ["linear_attention", "full_attention"]
MAMBA = {"hidden_size": 60, "num_hidden_layers": 2, "state_size": 10}
NEMOTRON_H = {"mamba_num_heads": 4, "mamba_head_dim": 10, "ssm_state_size": 10, "n_groups": 2, "chunk_size": 8}
MUP = {
    "embedding_multiplier": 1.5,
    "lm_head_multiplier": 0.5,
    "key_multiplier": 0.7,
    "attention_in_multiplier": 1.2,
    "attention_out_multiplier": 0.8,
    "ssm_in_multiplier": 1.3,
    "ssm_out_multiplier": 0.6,
    "ssm_multipliers": [0.9, 0.8, 0.7, 1.1, 1.2],
    "mlp_multipliers": [1.4, 0.6],
}
ZAMBA2 = {
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "layers_block_type": ["linear_attention", "hybrid", "hybrid", "hybrid"],
    "num_key_value_heads": 6,
    "n_mamba_heads": 6,
    "mamba_d_state": 10,
    "mamba_ngroups": 2,
    "chunk_size": 8,
    "num_mem_blocks": 2,
    "adapter_rank": 7,
    "use_shared_attention_adapter": True,
    "use_mem_rope": True,
    "time_step_min": 0.6,
    "rms_norm_eps": 0.05,
}
NO_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
DELTA_NET_SIZES = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
}
DELTA_NET = {**HEADS, **DELTA_NET_SIZES}
SHARED_EXPERT = {**EXPERTS, "shared_expert_intermediate_size": 28}
RWKV_LIKE = {
    "hidden_size": 60,
    "num_hidden_layers": 2,
    "intermediate_size": 52,
    "head_size": 12,
    "context_length": CONTEXT,
    "rescale_every": 6,
}
RWKV7_LIKE = {
    "hidden_size": 60,
    "num_hidden_layers": 3,
    "intermediate_size": 52,
    "head_dim": 12,
    "norm_eps": 1e-5,
    "decay_low_rank_dim": 7,
    "gate_low_rank_dim": 9,
    "a_low_rank_dim": 6,
    "v_low_rank_dim": 5,
    "max_position_embeddings": CONTEXT,
}

CASES = (
    Case("qwen3_next", transformers.Qwen3NextConfig, {**DELTA_NET, **SHARED_EXPERT}, norms_around_zero=True),
    Case(
        "qwen3_5_text",
        transformers.Qwen3_5TextConfig,
        {**DELTA_NET, "tie_word_embeddings": True},
        norms_around_zero=True,
    ),
    Case("qwen3_5_moe_text", transformers.Qwen3_5MoeTextConfig, {**DELTA_NET, **SHARED_EXPERT}, norms_around_zero=True),
    Case("rwkv5", Rwkv5Config, {"model_version": "5_2"}, sizes=RWKV_LIKE),
    Case("rwkv6", Rwkv6Config, {"time_mix_extra_dim": 7, "time_decay_extra_dim": 9}, sizes=RWKV_LIKE),
    Case("rwkv7", Rwkv7Config, sizes=RWKV7_LIKE),
    Case("olmo_hybrid", transformers.OlmoHybridConfig, {**DELTA_NET_SIZES, **NO_ROPE}),
    Case(
        "olmo_hybrid",
        transformers.OlmoHybridConfig,
        {"layer_types": HYBRID, "linear_allow_neg_eigval": False, "attention_bias": True},
        "rope",
    ),
    Case(
        "nemotron_h",
        transformers.NemotronHConfig,
        {**HEADS, **NEMOTRON_H, "hybrid_override_pattern": "M-*", "time_step_min": 0.6, "mlp_bias": True},
        quantized=True,
    ),
    Case(
        "nemotron_h",
        transformers.NemotronHConfig,
        {**HEADS, **NEMOTRON_H, "hybrid_override_pattern": "ME*E", "moe_latent_size": 28, "use_bias": True}
        | {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5, "n_routed_experts": 6}
        | {"moe_intermediate_size": 20, "moe_shared_expert_intermediate_size": 24},
        "latent-experts",
    ),
    Case(
        "granitemoehybrid",
        transformers.GraniteMoeHybridConfig,
        {**MAMBA2, **MULTIPLIERS, "mamba_n_groups": 2, "layer_types": HYBRID, "shared_intermediate_size": 44}
        | {"num_local_experts": 5, "num_experts_per_tok": 2},
    ),
    Case(
        "granitemoehybrid",
        transformers.GraniteMoeHybridConfig,
        {**MAMBA2, "layer_types": HYBRID, "shared_intermediate_size": 44, "num_local_experts": 0}
        | {"position_embedding_type": "rope", "mamba_proj_bias": True},
        "dense-rope",
        quantized=True,
    ),
    Case("lfm2", transformers.Lfm2Config, {"layer_types": ["conv", "full_attention"], "block_multiple_of": 4}),
    Case(
        "lfm2",
        transformers.Lfm2Config,
        {
            "num_hidden_layers": 3,
            "full_attn_idxs": [1],
            "conv_bias": True,
            "conv_L_cache": 4,
            "block_auto_adjust_ff_dim": False,
        },
        "bias",
        quantized=True,
    ),
    Case(
        "lfm2_moe",
        transformers.Lfm2MoeConfig,
        {**EXPERTS, "num_dense_layers": 1, "layer_types": ["full_attention", "conv"], "routed_scaling_factor": 1.5},
    ),
    Case("mamba", transformers.MambaConfig, {"use_bias": True, "time_step_rank": 7}, sizes=MAMBA, quantized=True),
    Case("falcon_mamba", transformers.FalconMambaConfig, {"conv_kernel": 3}, sizes=MAMBA),
    Case(
        "mamba2",
        transformers.Mamba2Config,
        {"num_heads": 6, "head_dim": 20, "n_groups": 2, "use_bias": True},
        sizes=MAMBA,
    ),
    Case(
        "bamba",
        transformers.BambaConfig,
        {**MAMBA2, "attn_layer_indices": [1], "attention_bias": True, "mlp_bias": True},
    ),
    Case(
        "jamba",
        transformers.JambaConfig,
        {"num_experts": 6, "num_experts_per_tok": 3, "attn_layer_period": 2, "attn_layer_offset": 1}
        | {"expert_layer_offset": 0, "mamba_d_state": 10},
    ),
    Case("zamba2", transformers.Zamba2Config, ZAMBA2),
    Case(
        "zamba2",
        transformers.Zamba2Config,
        {**ZAMBA2, "num_mem_blocks": 1, "use_shared_attention_adapter": False, "use_mem_rope": False}
        | {"layers_block_type": ["hybrid", "linear_attention"], "num_hidden_layers": 2, "add_bias_linear": True},
        "plain",
    ),
    Case("falcon_h1", transformers.FalconH1Config, {**MAMBA2, **MUP, "mamba_d_ssm": 42}),
    Case(
        "falcon_h1",
        transformers.FalconH1Config,
        {**MAMBA2, "mamba_d_ssm": 48, "mamba_n_groups": 2, "mamba_rms_norm": True, "time_step_limit": (0.5, 1.5)},
        "norm",
    ),
)
