"""GGUF architectures with DeepSeek's routers beside attention of their own family: Bailing, MiMo V2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_toolchain.gguf_base import LLAMA, ROTARY, WINDOW, like_llama, rotary_part
from mlc_toolchain.gguf_routed import EXPERTS, ROUTED, ROUTING, SPARSE, dense_first
from model_zoo.layer_types import FULL, SLIDING
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Permute

BAILING_NAMES = {
    **EXPERTS,
    "token_embd": "model.word_embeddings",
    "attn_output": "attention.dense",
    "exp_probs_b.bias": "mlp.gate.expert_bias",
}


def _joined_heads(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Queries, keys and values, one tensor in the checkpoint; rows of the former two were reordered in each head."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads

    def halves(name: str, count: int) -> Expr:
        return Permute((CheckpointTensor(f"{name}.weight"),), (count, size // 2, 2), (0, 2, 1))

    parts = halves("attn_q", heads), halves("attn_k", kv_heads), CheckpointTensor("attn_v.weight")
    return {"attention.query_key_value.weight": Concat(parts)}


def _sigmoid(config: dict[str, Any]) -> dict[str, Any]:
    return dense_first(config) | rotary_part(config)


def _mimo(config: dict[str, Any]) -> dict[str, Any]:
    """Heads of keys by layer; the window is that of the config, which does not count a token's own position."""
    kinds = [SLIDING if flag else FULL for flag in config.pop("windows")]
    heads = dict(zip(kinds, config["num_key_value_heads"], strict=True))
    found = dense_first(config) | rotary_part(config)
    counts = {"num_key_value_heads": FULL, "swa_num_key_value_heads": SLIDING}
    return {
        **found,
        "norm_topk_prob": True,
        "layer_types": kinds,
        "local_partial_rotary_factor": found["partial_rotary_factor"],
        "sliding_window": config["sliding_window"] + 1,
        **{key: heads[kind] for key, kind in counts.items() if kind in heads},
    }


BAILING = like_llama(
    "bailing_moe",
    "BailingMoeForCausalLM",
    config={**LLAMA.config, **ROUTED},
    optional=ROUTING,
    having=SPARSE,
    names=BAILING_NAMES,
    derived=_joined_heads,
    finish=dense_first,
)
BAILING2 = like_llama(
    "bailing_moe",
    "BailingMoeV2ForCausalLM",
    config={**LLAMA.config, **ROUTED},
    optional={**ROUTING, **ROTARY},
    having=SPARSE,
    names={
        **BAILING_NAMES,
        "attn_qkv": "attention.query_key_value",
        "attn_q_norm": "attention.query_layernorm",
        "attn_k_norm": "attention.key_layernorm",
    },
    present={"use_qkv_bias": "attn_qkv.bias", "use_qk_norm": "attn_q_norm.weight"},
    fixed={"score_function": "sigmoid"},
    finish=_sigmoid,
    others=("bailing_moe_v2",),
)
MIMO2 = like_llama(
    "mimo_v2_flash",
    "MiMoV2FlashForCausalLM",
    config={**LLAMA.config, **ROUTED},
    optional={
        **ROUTING,
        **ROTARY,
        **WINDOW,
        "v_head_dim": ("attention.value_length",),
        "rope_local_base_freq": ("rope.freq_base_swa",),
        "attention_value_scale": ("attention.value_scale",),
    },
    lists={"num_key_value_heads": "attention.head_count_kv", "windows": "attention.sliding_window_pattern"},
    having=SPARSE,
    names={**EXPERTS, "attn_sinks.weight": "self_attn.attention_sink_bias"},
    present={"attention_bias": "attn_q.bias"},
    finish=_mimo,
)
ROUTED_FAMILIES = {"bailingmoe": BAILING, "bailingmoe2": BAILING2, "mimo2": MIMO2}
"""By ``general.architecture``, of files with experts."""
