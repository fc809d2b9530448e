"""Keys of a config.json that an architecture does not read: keys that may be ignored, and keys that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_errors import MLCError, UnsupportedError

LAYER_TYPES = ("full_attention", "sliding_attention")

# Keys that change the computation -> values without an effect. A model that supports a key has a field of that name.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention_multiplier": (None,),
    "attn_logit_softcapping": (None,),
    "clip_qkv": (None,),
    "embedding_multiplier": (None, 1.0),
    "final_logit_softcapping": (None,),
    "hidden_act": ("silu", "swish"),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "add_cross_attention": (None, False),
    "is_decoder_only": (None, True),
    "kv_lora_rank": (None,),
    "logit_scale": (None, 1.0),
    "logits_scaling": (None, 1.0),
    "decoder_sparse_step": (None, 1),
    "mlp_only_layers": (None, []),
    "no_rope_layers": (None, []),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "partial_rotary_factor": (None, 1.0),
    "quantization_config": (None,),
    "residual_multiplier": (None, 1.0),
    "scale_attn_by_inverse_layer_idx": (None, False),
    "scale_attn_weights": (None, True),
    "sliding_window": (None, -1, 0),
    "tensor_parallel_shards": (None, 1),
    "pipeline_parallel_stages": (None, 1),
    "use_qk_norm": (None, False),
    "full_attn_mod": (1,),
    "interpolate_factor": (1,),
    "norm_type": ("layer_norm", "rms_norm"),
    "use_parallel_residual": (None, False),
}
# Keys that do not change the computation, whatever their value.
HARMLESS = frozenset(
    """
    _attn_implementation add_bos_token architectures attention_dropout attention_probs_dropout_prob
    attention_softmax_in_fp32 attn_dropout attn_implementation attn_pdrop auto_map bad_words_ids
    begin_suppress_tokens bf16 bos_token_id cache_implementation chunk_size_feed_forward classifier_dropout
    classifier_dropout_prob cross_attention_hidden_size decoder_start_token_id disaggregation diversity_penalty
    do_sample dropout dtype early_stopping emb_dropout_prob embd_pdrop embedding_dropout
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty ffn_dropout finetuning_task
    flash_attn flash_rotary forced_bos_token_id forced_eos_token_id fp16 fp32 fused_bias_fc fused_dense
    hidden_dropout hidden_dropout_prob id2label initializer_range is_encoder_decoder is_llama_config label2id
    language layer_types layerdrop length_penalty max_length max_window_layers min_length model_type
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences onnx_safe output_attentions
    output_hidden_states output_router_logits output_scores pad_token_id prefix pretraining_tp problem_type
    pruned_heads remove_invalid_values reorder_and_upcast_attn repetition_penalty resid_dropout resid_pdrop
    residual_dropout return_dict return_dict_in_generate rope_parameters router_aux_loss_coef router_jitter_noise
    scale_attention_softmax_in_fp32 sep_token_id seq_length softmax_in_fp32 summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj suppress_tokens task_specific_params temperature
    tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers.js_config
    transformers_version typical_p unk_token_id unsloth_fixed unsloth_version use_bfloat16 use_cache
    use_flash_attention use_flash_attn use_sliding_window
    """.split()
)

# Keys of ``rope_scaling`` that some kind of scaling reads, and keys without an effect on texts.
SCALING_KEYS = frozenset(
    """
    alpha attention_factor beta_fast beta_slow factor finetuned high_freq_factor long_factor long_mscale low_freq_factor
    max_position_embeddings mrope_interleaved mrope_section mscale mscale_all_dim original_max_position_embeddings
    partial_rotary_factor rope_theta rope_type short_factor short_mscale truncate type
    """.split()
)
NEUTRAL_SCALING: Mapping[str, tuple[Any, ...]] = {"attn_factor": (None, 1), "extrapolation_factor": (None, 1)}


def refuse_unsupported(model_type: str, unread: Mapping[str, Any], neutral_here: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise UnsupportedError for a key that changes the computation, and for an unknown key.

    neutral_here: key -> values without an effect on this model; overrides ``NEUTRAL``.
    """
    neutral = {**NEUTRAL, **neutral_here}
    for key, value in unread.items():
        if key in neutral and value not in neutral[key]:
            raise UnsupportedError(
                f"{key}: got {str(value)[:80]}; {model_type} models are supported with {neutral[key][-1]!r} only",
                where=["config.json"],
            )
    unknown = {key: value for key, value in unread.items() if key not in neutral}
    strange = sorted(key[:80] for key, value in unknown.items() if not _is_harmless(key, value))
    if strange:
        raise UnsupportedError(
            f"{', '.join(strange[:12])}: {model_type} models have no such key",
            where=["config.json"],
            hint="remove keys that leave the computation as it is from config.json",
        )


def refuse_scaling(model_type: str, scaling: object, read_here: frozenset[str]) -> None:
    """Raise UnsupportedError for a key of ``rope_scaling`` that changes the computation, and for an unknown key.

    read_here: keys that this model reads beside ``SCALING_KEYS``.
    """
    for key, value in scaling.items() if isinstance(scaling, Mapping) else ():
        if value in NEUTRAL_SCALING.get(key, ()) or key in SCALING_KEYS | read_here or value in (None, False):
            continue
        if key in NEUTRAL_SCALING:
            problem = f"got {str(value)[:80]}; expected {NEUTRAL_SCALING[key][-1]}"
        else:
            problem = f"{model_type} models have no such key"
        raise UnsupportedError(f"rope_scaling.{str(key)[:80]}: {problem}", where=["config.json"])


def _is_harmless(key: str, value: Any) -> bool:
    """Whether a key may be ignored: it is in ``HARMLESS``, private (``_``), or its value is empty or false."""
    return key in HARMLESS or key.startswith("_") or value in (None, False, "", [], {})


def check_equal_layers(values: Mapping[str, Any]) -> None:
    """Raise UnsupportedError if ``layer_types`` differ between layers."""
    layers = values.get("layer_types") or []
    if not isinstance(layers, list) or not all(isinstance(kind, str) for kind in layers):
        raise MLCError("layer_types: expected a list of names", where=["config.json"])
    if layers and set(layers) not in [{kind} for kind in LAYER_TYPES]:
        kinds = ", ".join(sorted(set(layers)))
        raise UnsupportedError(f"layer_types: got {kinds}; expected the same in all layers", where=["config.json"])
