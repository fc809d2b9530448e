"""GGUF architectures with experts and the attention of their own family: Granite, ERNIE, Hunyuan, MiniMax, Phi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_toolchain.gguf_base import EXPERTS, LLAMA, QK_NORMS, ROTARY, SCALES, WINDOW, like_llama, rotary_part
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr

LOCAL = {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
ATTENTION_BIAS = {"attention_bias": "attn_q.bias"}


def _granite_experts(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Gate and up projections of all experts are one tensor in the checkpoint."""
    pair = CheckpointTensor("ffn_gate_exps.weight"), CheckpointTensor("ffn_up_exps.weight")
    return {"block_sparse_moe.input_linear.weight": Concat(pair, 1)}


def _last_sparse_layer(config: dict[str, Any]) -> dict[str, Any]:
    sparse = config.pop("sparse")
    return {"moe_layer_end_index": max((i for i, is_sparse in enumerate(sparse) if is_sparse), default=-1)}


def _shared(name: str) -> dict[str, str]:
    return {f"ffn_{part}_shexp": f"mlp.{name}.{part}_proj" for part in ("gate", "up", "down")}


GRANITE_MOE = like_llama(
    "granitemoe",
    "GraniteMoeForCausalLM",
    config={**LLAMA.config, **LOCAL},
    optional=SCALES,
    names={"ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_down_exps": "block_sparse_moe.output_linear"},
    heads=LLAMA.heads,
    present=ATTENTION_BIAS,
    derived=_granite_experts,
)
ERNIE_MOE = like_llama(
    "ernie4_5_moe",
    "Ernie4_5_MoeForCausalLM",
    config={
        **LLAMA.config,
        "moe_num_experts": "expert_count",
        "moe_k": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "moe_layer_interval": "interleave_moe_layer_step",
        "moe_layer_start_index": "leading_dense_block_count",
    },
    optional={"moe_num_shared_experts": ("expert_shared_count",)},
    having={"sparse": "ffn_gate_inp.weight"},
    names={**EXPERTS, **_shared("shared_experts"), "exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"},
    present={"use_bias": "attn_q.bias"},
    finish=_last_sparse_layer,
)
HUNYUAN_MOE = like_llama(
    "hunyuan_v1_moe",
    "HunYuanMoEV1ForCausalLM",
    config={
        **LLAMA.config,
        "intermediate_size": "expert_feed_forward_length",
        "num_experts": "expert_count",
        "moe_topk": "expert_used_count",
        "num_shared_expert": "expert_shared_count",
    },
    names={
        **EXPERTS,
        **_shared("shared_mlp"),
        "ffn_gate_inp": "mlp.gate.wg",
        "attn_q_norm": "self_attn.query_layernorm",
        "attn_k_norm": "self_attn.key_layernorm",
    },
    present=ATTENTION_BIAS,
)
MINIMAX_M2 = like_llama(
    "minimax_m2",
    "MiniMaxM2ForCausalLM",
    config={**LLAMA.config, **LOCAL, "intermediate_size": "expert_feed_forward_length"},
    optional=ROTARY,
    names={
        **EXPERTS,
        **QK_NORMS,
        "ffn_gate_inp": "block_sparse_moe.gate",
        "exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias",
    },
    finish=rotary_part,
)
PHI_MOE = like_llama(
    "phimoe",
    "PhimoeForCausalLM",
    config={**LLAMA.config, **LOCAL},
    optional={**WINDOW, "original_max_position_embeddings": ("rope.scaling.original_context_length",)},
    names={**EXPERTS, "ffn_gate_inp": "block_sparse_moe.gate"},
    fixed={"lm_head_bias": True},
    present=ATTENTION_BIAS,
    longrope={"short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122},
)
"""The metadata lacks the rotary scaling factors; these are those of the only published model."""
FAMILY_MIXTURES = {
    "granitemoe": GRANITE_MOE,
    "ernie4_5-moe": ERNIE_MOE,
    "hunyuan-moe": HUNYUAN_MOE,
    "minimax-m2": MINIMAX_M2,
    "phimoe": PHI_MOE,
}
"""Architectures of files with experts, by ``general.architecture``."""
