"""Decoders with norms, biases or positions as in GPT: learned, ALiBi, partial RoPE."""

from __future__ import annotations

import transformers

from tests.model_zoo.architecture_cases.case import CONTEXT, LLAMA_LIKE, PARTIAL, Case, rope
from tests.model_zoo.checkpoint_forms import phi_msft

NEOX_LIKE = {k: v for k, v in LLAMA_LIKE.items() if k != "num_key_value_heads"}
GPT2_LIKE = {"n_embd": 60, "n_inner": 52, "n_layer": 2, "n_head": 6, "n_positions": CONTEXT}
NEO_LIKE = {
    "hidden_size": 60,
    "intermediate_size": 52,
    "num_layers": 2,
    "num_heads": 6,
    "max_position_embeddings": CONTEXT,
}
BLOOM_LIKE = {"hidden_size": 60, "n_layer": 2, "n_head": 6}
MPT_LIKE = {"d_model": 60, "n_heads": 6, "n_layers": 2, "max_seq_len": CONTEXT}
FALCON_LIKE = {k: v for k, v in NEOX_LIKE.items() if k != "intermediate_size"}
OPT_LIKE = {**NEOX_LIKE, "ffn_dim": 52, "word_embed_proj_dim": 60}

CASES = (
    Case("gpt_neox", transformers.GPTNeoXConfig, rope(**PARTIAL), sizes=NEOX_LIKE, quantized=True),
    Case(
        "gpt_neox",
        transformers.GPTNeoXConfig,
        {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new"},
        "sequential",
        NEOX_LIKE,
    ),
    Case(
        "gpt_neo",
        transformers.GPTNeoConfig,
        {"attention_types": [[["global", "local"], 1]], "window_size": 7},
        sizes=NEO_LIKE,
    ),
    Case("gptj", transformers.GPTJConfig, {"rotary_dim": 6}, sizes=GPT2_LIKE),
    Case("phi", transformers.PhiConfig, rope(**PARTIAL)),
    Case("phi", transformers.PhiConfig, {"qk_layernorm": True, **rope(**PARTIAL)}, "qk-norm"),
    Case("phi-msft", transformers.PhiConfig, rope(**PARTIAL), to_checkpoint=phi_msft),
    Case("gpt_bigcode", transformers.GPTBigCodeConfig, sizes=GPT2_LIKE),
    Case("gpt_bigcode", transformers.GPTBigCodeConfig, {"multi_query": False}, "multi-head", GPT2_LIKE),
    Case("falcon", transformers.FalconConfig, {"multi_query": True}, sizes=FALCON_LIKE),
    Case(
        "falcon",
        transformers.FalconConfig,
        {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 52},
        "grouped",
        FALCON_LIKE,
        quantized=True,
    ),
    Case(
        "falcon",
        transformers.FalconConfig,
        {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1},
        "one-norm",
        FALCON_LIKE,
    ),
    Case(
        "falcon",
        transformers.FalconConfig,
        {
            "alibi": True,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
            "num_attention_heads": 4,
            "hidden_size": 48,
            "attn_implementation": "sdpa",  # the eager form adds the slopes twice
        },
        "alibi",
        FALCON_LIKE,
    ),
    Case("mpt", transformers.MptConfig, {"attn_config": {"clip_qkv": 0.7}}, sizes=MPT_LIKE),
    Case("bloom", transformers.BloomConfig, sizes=BLOOM_LIKE),
    Case("opt", transformers.OPTConfig, sizes=OPT_LIKE),
    Case("opt", transformers.OPTConfig, {"enable_bias": False, "tie_word_embeddings": False}, "no-bias", OPT_LIKE),
)
