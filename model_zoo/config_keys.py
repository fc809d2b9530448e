"""Keys of a config.json that leave the computation as it is, whatever their value."""

from __future__ import annotations

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
