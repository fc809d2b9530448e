"""Gemma and its successors, text only."""

from __future__ import annotations

import transformers
from transformers import PreTrainedModel

from model_zoo.mobilenetv5 import SMALL
from tests.model_zoo.architecture_cases.case import COMMON, HEADS, IMAGE_TOKEN, LLAMA_LIKE, MIXED, VOCAB, WINDOWS, Case
from tests.model_zoo.checkpoint_forms import gemma3n_text_part

GEMMA4 = {
    "head_dim": 12,
    "global_head_dim": 16,
    "sliding_window": 7,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "vocab_size_per_layer_input": 261,
    "hidden_size_per_layer_input": 6,
}
GEMMA3N = {
    "head_dim": 12,
    "sliding_window": 7,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 250,
    "hidden_size_per_layer_input": 6,
    "laurel_rank": 8,
    "altup_num_inputs": 3,
}

GEMMA4_TOWER = {
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 12,
    "patch_size": 7,
    "position_embedding_size": 40,
}


SOUND = {
    "hidden_size": 16,
    "vocab_offset": VOCAB,
    "vocab_size": 4,
    "conf_num_hidden_layers": 1,
    "conf_num_attention_heads": 2,
    "sscp_conv_channel_size": (4, 4),
    "input_feat_size": 16,
}
TWO_LAYERS = {"num_hidden_layers": 2, "layer_types": MIXED, "num_kv_shared_layers": 0}


def with_bounds(model: PreTrainedModel) -> None:
    """Set the clipping bounds of linear layers so that some values exceed them."""
    for name, buffer in model.named_buffers():
        if name.endswith(("_min", "_max")):
            buffer.fill_(2.0 if name.endswith("_max") else -1.5)


CASES = (
    Case("gemma", transformers.GemmaConfig, {**HEADS, "num_key_value_heads": 1}, norms_around_zero=True),
    Case("gemma2", transformers.Gemma2Config, {**WINDOWS, "query_pre_attn_scalar": 9}, norms_around_zero=True),
    Case(
        "gemma3_text",
        transformers.Gemma3TextConfig,
        {
            **WINDOWS,
            "num_hidden_layers": 3,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 9,
            "final_logit_softcapping": 4.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        norms_around_zero=True,
        quantized=True,
    ),
    Case(
        "gemma3n_text", transformers.Gemma3nTextConfig, {**GEMMA3N, "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0]}
    ),
    Case(
        "gemma3n",
        transformers.Gemma3nTextConfig,
        {**GEMMA3N, "num_hidden_layers": 2, "layer_types": MIXED, "num_kv_shared_layers": 0, "altup_active_idx": 1},
        "text-part",
        to_checkpoint=gemma3n_text_part,
    ),
    Case(
        "gemma3n",
        transformers.Gemma3nConfig,
        {
            "text_config": {**COMMON, **LLAMA_LIKE, **GEMMA3N, **TWO_LAYERS},
            "vision_config": {**SMALL, "vocab_offset": 248, "vocab_size": VOCAB - 248},
            "audio_config": SOUND,
            "image_token_id": IMAGE_TOKEN,
            "boi_token_id": 5,
            "eoi_token_id": 249,
            "vision_soft_tokens_per_image": 4,
        },
        sizes={},
        image_tokens=4,
    ),
    Case("gemma4_text", transformers.Gemma4TextConfig, GEMMA4),
    Case("vaultgemma", transformers.VaultGemmaConfig, {**WINDOWS, "query_pre_attn_scalar": 9}, norms_around_zero=True),
    Case(
        "gemma4_text",
        transformers.Gemma4TextConfig,
        {
            **GEMMA4,
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
            "num_hidden_layers": 2,
            "layer_types": MIXED,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "final_logit_softcapping": 4.0,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 3,
            "moe_intermediate_size": 20,
        },
        "experts",
    ),
    *(
        Case(
            "gemma4",
            transformers.Gemma4Config,
            {
                "text_config": {**COMMON, **LLAMA_LIKE, **GEMMA4, **TWO_LAYERS, **more},
                "vision_config": {**GEMMA4_TOWER, "use_clipped_linears": not more, "standardize": bool(more)},
                "image_token_id": IMAGE_TOKEN,
            },
            variant,
            sizes={},
            grids=[(2, 3), (3, 1)],
            adapt=with_bounds,
        )
        for variant, more in (
            ("", {}),
            ("both-ways", {"use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0}),
        )
    ),
)
