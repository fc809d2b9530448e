"""GGUF architectures with DeepSeek's experts or latent attention, and Llama 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_toolchain.gguf_base import LLAMA, QK_NORMS, ROTARY, like_llama, rotary_part
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Reshape, Transpose

ROUTED = {
    "n_routed_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
ROUTING = {
    "n_shared_experts": ("expert_shared_count",),
    "n_group": ("expert_group_count",),
    "topk_group": ("expert_group_used_count",),
    "routed_scaling_factor": ("expert_weights_scale",),
    "norm_topk_prob": ("expert_weights_norm",),
}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    **{f"ffn_{part}_exps": f"mlp.experts.{part}_proj" for part in ("gate", "up", "down")},
    **{f"ffn_{part}_shexp": f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")},
}
SPARSE = {"sparse": "ffn_gate_inp.weight"}
CORRECTED = {"corrected": "exp_probs_b.bias"}
LATENT = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
}
LATENT_SIZES = {"kv_lora_rank": "attention.kv_lora_rank", "qk_rope_head_dim": "rope.dimension_count"}


def _tensor(name: str) -> CheckpointTensor:
    return CheckpointTensor(f"{name}.weight")


def dense_first(config: dict[str, Any]) -> dict[str, Any]:
    """The first layers are dense, the others have experts."""
    sparse = config.pop("sparse")
    routing = {"norm_topk_prob": False, "routed_scaling_factor": 1.0} | {k: config[k] for k in ROUTING if k in config}
    return {**routing, "first_k_dense_replace": sparse.index(True) if True in sparse else len(sparse)}


def _deepseek(config: dict[str, Any]) -> dict[str, Any]:
    """Head sizes before keys and values were absorbed; a score correction bias makes it DeepSeek-V3."""
    found = dense_first(config) | _latent_heads(config)
    if config.pop("corrected"):
        return {**found, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
    grouped = config.get("n_group", 1) > 1
    return {**found, "topk_method": "group_limited_greedy" if grouped else "greedy"}


def _latent_heads(config: dict[str, Any]) -> dict[str, Any]:
    """The head size without rotation, and all heads: the metadata counts one key head if keys stay compressed."""
    rest = config.pop("key_length") - config["qk_rope_head_dim"]
    return {"qk_nope_head_dim": rest, "num_key_value_heads": config["num_attention_heads"]}


def _absorbed(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """The key up-projection (transposed in the file) and the value up-projection are one tensor in the checkpoint."""
    key, value, rank = (config[k] for k in ("qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    joined = Concat((Transpose((_tensor("attn_k_b"),)), _tensor("attn_v_b")), 1)
    rows = config["num_attention_heads"] * (key + value)
    return {"self_attn.kv_b_proj.weight": Reshape((joined,), (rows, rank))}


def _glm(config: dict[str, Any]) -> dict[str, Any]:
    return dense_first(config) | rotary_part(config)


def _llama4(config: dict[str, Any]) -> dict[str, Any]:
    """The model with 128 experts has no query and key norms, which the metadata does not say."""
    return {"use_qk_norm": config["num_local_experts"] != WITHOUT_QK_NORM}


def _llama4_experts(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Experts' matrices are [E, in, out] in the checkpoint, with gate columns before up columns."""
    pair = Concat((_tensor("ffn_gate_exps"), _tensor("ffn_up_exps")), 1)
    experts = {"gate_up_proj": pair, "down_proj": _tensor("ffn_down_exps")}
    return {f"feed_forward.experts.{name}": Transpose((value,)) for name, value in experts.items()}


WITHOUT_QK_NORM = 128
DEEPSEEK2 = like_llama(
    "deepseek_v2",
    "DeepseekV2ForCausalLM",
    config={**LLAMA.config, **ROUTED, **LATENT_SIZES},
    optional={
        **ROUTING,
        "q_lora_rank": ("attention.q_lora_rank",),
        "key_length": ("attention.key_length_mla", "attention.key_length"),
        "v_head_dim": ("attention.value_length_mla", "attention.value_length"),
    },
    having=SPARSE,
    names={**EXPERTS, **LATENT},
    present={**CORRECTED, "attention_bias": "attn_kv_a_mqa.bias"},
    derived=_absorbed,
    magnitude=0.1,
    finish=_deepseek,
    others=("deepseek_v3",),
)
GLM4_MOE = like_llama(
    "glm4_moe",
    "Glm4MoeForCausalLM",
    config={**LLAMA.config, **ROUTED},
    optional={**ROUTING, **ROTARY},
    having=SPARSE,
    names={**EXPERTS, **QK_NORMS, "post_attention_norm": "post_attention_layernorm"},
    present={"attention_bias": "attn_q.bias", "use_qk_norm": "attn_q_norm.weight"},
    finish=_glm,
)
DOTS1 = like_llama(
    "dots1",
    "Dots1ForCausalLM",
    config={**LLAMA.config, **ROUTED},
    optional=ROUTING,
    having=SPARSE,
    names={**EXPERTS, **QK_NORMS},
    present={"attention_bias": "attn_q.bias"},
    finish=dense_first,
)
LLAMA4 = like_llama(
    "llama4_text",
    "Llama4ForCausalLM",
    config={
        **{key: value for key, value in LLAMA.config.items() if key != "intermediate_size"},
        "intermediate_size_mlp": "feed_forward_length",
        "intermediate_size": "expert_feed_forward_length",
        "num_local_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "interleave_moe_layer_step": "interleave_moe_layer_step",
    },
    names={
        "ffn_gate_inp": "feed_forward.router",
        **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
        **{f"ffn_{part}_shexp": f"feed_forward.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
    },
    present={"attention_bias": "attn_q.bias"},
    derived=_llama4_experts,
    finish=_llama4,
)
MINICPM3 = like_llama(
    "minicpm3",
    "MiniCPM3ForCausalLM",
    config={**LLAMA.config, **LATENT_SIZES},
    optional={"q_lora_rank": ("attention.q_lora_rank",), "key_length": ("attention.key_length",)},
    names=LATENT,
    finish=_latent_heads,
)
"""The metadata lacks the multipliers; these are those of the only published model."""
LATENT_DENSE = {"minicpm3": MINICPM3}
"""By ``general.architecture``."""
ROUTED_MIXTURES = {"deepseek2": DEEPSEEK2, "glm4moe": GLM4_MOE, "dots1": DOTS1, "llama4": LLAMA4}
"""By ``general.architecture``, of files with experts."""
