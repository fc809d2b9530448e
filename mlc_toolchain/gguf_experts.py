"""GGUF architectures with experts: per layer, one tensor each for all experts' gate, up and down projections."""

from __future__ import annotations

from mlc_toolchain.gguf_base import EXPERTS, LLAMA, QK_NORMS, SHARED, WINDOW, like_llama
from mlc_toolchain.gguf_mamba import STATE_SPACE_MIXTURES
from mlc_toolchain.gguf_mixtures import FAMILY_MIXTURES
from mlc_toolchain.gguf_recurrent import RECURRENT_MIXTURES
from mlc_toolchain.gguf_routed import ROUTED_MIXTURES
from mlc_toolchain.gguf_routed_families import ROUTED_FAMILIES

COUNTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
SIZED = {**LLAMA.config, **COUNTS, "moe_intermediate_size": "expert_feed_forward_length"}
MIXTRAL = like_llama(
    "mixtral",
    "MixtralForCausalLM",
    config={**LLAMA.config, "num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"},
    names=EXPERTS,
    heads=LLAMA.heads,
)
QWEN2_MOE = like_llama(
    "qwen2_moe",
    "Qwen2MoeForCausalLM",
    config={**SIZED, "shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
    names={**EXPERTS, **SHARED},
)
QWEN3_MOE = like_llama(
    "qwen3_moe", "Qwen3MoeForCausalLM", config=SIZED, names={**EXPERTS, **QK_NORMS}, fixed={"norm_topk_prob": True}
)
OLMOE = like_llama("olmoe", "OlmoeForCausalLM", config={**LLAMA.config, **COUNTS}, names={**EXPERTS, **QK_NORMS})
GPT_OSS = like_llama(
    "gpt_oss",
    "GptOssForCausalLM",
    config={**LLAMA.config, **COUNTS, "intermediate_size": "expert_feed_forward_length"},
    names={
        **EXPERTS,
        "ffn_gate_inp": "mlp.router",
        "attn_sinks": "self_attn.sinks",
        "post_attention_norm": "post_attention_layernorm",
    },
    optional=WINDOW,
    yarn={"truncate": False},
)
MIXTURES = {
    "llama": MIXTRAL,
    "qwen2moe": QWEN2_MOE,
    "qwen3moe": QWEN3_MOE,
    "olmoe": OLMOE,
    "gpt-oss": GPT_OSS,
    **STATE_SPACE_MIXTURES,
    **RECURRENT_MIXTURES,
    **ROUTED_MIXTURES,
    **ROUTED_FAMILIES,
    **FAMILY_MIXTURES,
}
"""Architectures of files with experts, by ``general.architecture``."""
