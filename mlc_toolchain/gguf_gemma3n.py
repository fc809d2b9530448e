"""The GGUF architecture of Gemma 3n: AltUp matrices are stacked, sparsity is given in standard deviations."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

from mlc_toolchain.gguf_base import LLAMA, POST_NORMS, QK_NORMS, WINDOW, like_llama


def _per_layer(config: dict[str, Any]) -> dict[str, Any]:
    """Layer types from the windows, and activation sparsity as fractions from the normal distribution's quantiles."""
    local, scales = config.pop("sliding_window_pattern"), config.pop("activation_sparsity_scale")
    return {
        "layer_types": ["sliding_attention" if is_local else "full_attention" for is_local in local],
        "activation_sparsity_pattern": [round(NormalDist().cdf(scale), 6) for scale in scales],
    }


GEMMA3N = like_llama(
    "gemma3n_text",
    "Gemma3nForCausalLM",
    config={key: name for key, name in LLAMA.config.items() if key != "intermediate_size"}
    | {
        "altup_num_inputs": "altup.num_inputs",
        "altup_active_idx": "altup.active_idx",
        "hidden_size_per_layer_input": "embedding_length_per_layer_input",
        "num_kv_shared_layers": "attention.shared_kv_layers",
    },
    lists={
        "intermediate_size": "feed_forward_length",
        "sliding_window_pattern": "attention.sliding_window_pattern",
        "activation_sparsity_scale": "activation_sparsity_scale",
    },
    rows={"vocab_size_per_layer_input": "per_layer_token_embd.weight", "laurel_rank": "blk.0.laurel_l.weight"},
    optional={**WINDOW, "final_logit_softcapping": ("final_logit_softcapping",)},
    names={
        **POST_NORMS,
        **QK_NORMS,
        "ffn_norm": "pre_feedforward_layernorm",
        "per_layer_token_embd": "model.embed_tokens_per_layer",
        "per_layer_model_proj": "model.per_layer_model_projection",
        "per_layer_proj_norm": "model.per_layer_projection_norm",
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "altup_correct_coef": "altup.correction_coefs",
        "altup_correct_scale.weight": "altup.correct_output_scale",
        "altup_predict_coef": "altup.prediction_coefs",
        "altup_router": "altup.modality_router",
        "altup_router_norm": "altup.router_norm",
        "laurel_l": "laurel.linear_left",
        "laurel_r": "laurel.linear_right",
        "laurel_post_norm": "laurel.post_laurel_norm",
    },
    stacked={
        "altup_proj.weight": "model.altup_projections.{}.weight",
        "altup_unembd_proj.weight": "model.altup_unembed_projections.{}.weight",
    },
    finish=_per_layer,
    others=("gemma3n",),
)
