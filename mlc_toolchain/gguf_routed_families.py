"""GGUF architectures with DeepSeek's routers and the attention of their own family: Bailing, MiMo V2, Step 3.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_toolchain.gguf_base import LLAMA, QK_NORMS, ROTARY, WINDOW, like_llama, rotary_part
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
    """Join queries, keys and values to one tensor; rows of the former two were reordered in each head."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads

    def halves(name: str, count: int) -> Expr:
        return Permute((CheckpointTensor(f"{name}.weight"),), (count, size // 2, 2), (0, 2, 1))

    parts = halves("attn_q", heads), halves("attn_k", kv_heads), CheckpointTensor("attn_v.weight")
    return {"attention.query_key_value.weight": Concat(parts)}


def _sigmoid(config: dict[str, Any]) -> dict[str, Any]:
    return dense_first(config) | rotary_part(config)


def _by_kind(config: dict[str, Any], key: str, counts: Mapping[str, str]) -> dict[str, Any]:
    """Layer types, and the per-layer numbers of a list as one number per type; counts: config key -> type."""
    kinds = [SLIDING if flag else FULL for flag in config.pop("windows")]
    numbers = dict(zip(kinds, config.pop(key), strict=True))
    return {"layer_types": kinds, **{name: numbers[kind] for name, kind in counts.items() if kind in numbers}}


def _mimo(config: dict[str, Any]) -> dict[str, Any]:
    """Convert the window to the published config's, which does not count the token's own position."""
    counts = {"num_key_value_heads": FULL, "swa_num_key_value_heads": SLIDING}
    found = {**_by_kind(config, "num_key_value_heads", counts), **_sigmoid(config), "norm_topk_prob": True}
    rotated = found["partial_rotary_factor"]
    return {**found, "local_partial_rotary_factor": rotated, "sliding_window": config["sliding_window"] + 1}


def _step(config: dict[str, Any]) -> dict[str, Any]:
    """Full-attention layers rotate half of a head, which the metadata does not say."""
    heads = {"num_attention_heads": FULL, "num_sliding_attention_heads": SLIDING}
    sparse = [str(i) for i, is_sparse in enumerate(config.pop("sparse")) if is_sparse]
    return {
        **_by_kind(config, "num_attention_heads", heads),
        "num_key_value_heads": config["num_key_value_heads"][0],
        "moe_layers_enum": ",".join(sparse),
        "partial_rotary_factor": 0.5,
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
STEP35 = like_llama(
    "step3p5",
    "Step3p5ForCausalLM",
    config={key: name for key, name in {**LLAMA.config, **ROUTED}.items() if key != "num_attention_heads"}
    | {"share_expert_dim": "expert_shared_feed_forward_length"},
    optional={
        **WINDOW,
        "routed_scaling_factor": ROUTING["routed_scaling_factor"],
        "rope_local_base_freq": ("rope.freq_base_swa",),
    },
    lists={
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "windows": "attention.sliding_window_pattern",
        "swiglu_limits": "swiglu_clamp_exp",
        "swiglu_limits_shared": "swiglu_clamp_shexp",
    },
    having=SPARSE,
    names={
        **QK_NORMS,
        "attn_gate": "self_attn.g_proj",
        "ffn_gate_inp": "moe.gate",
        "exp_probs_b.bias": "moe.router_bias",
        **{f"ffn_{part}_exps": f"moe.{part}_proj" for part in ("gate", "up", "down")},
        **{f"ffn_{part}_shexp": f"share_expert.{part}_proj" for part in ("gate", "up", "down")},
    },
    one_plus=frozenset({"attn_norm", "ffn_norm", "output_norm", *QK_NORMS}),
    finish=_step,
)
ROUTED_FAMILIES = {"bailingmoe": BAILING, "bailingmoe2": BAILING2, "mimo2": MIMO2, "step35": STEP35}
"""Architectures of files with experts, by ``general.architecture``."""
