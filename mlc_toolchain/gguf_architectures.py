"""The table of GGUF architectures, by the name in the file's metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlc_toolchain.gguf_base import (
    LAYER_NORM_CONFIG,
    LAYER_NORM_EPSILON,
    LLAMA,
    POST_NORMS,
    QK_NORMS,
    ROTARY,
    SCALES,
    WINDOW,
    GGUFArchitecture,
    like_llama,
    rotary_part,
)
from mlc_toolchain.gguf_encoders import ENCODERS
from mlc_toolchain.gguf_families import FAMILIES
from mlc_toolchain.gguf_gemma3n import GEMMA3N
from mlc_toolchain.gguf_mamba import STATE_SPACE
from mlc_toolchain.gguf_recurrent import RECURRENT
from mlc_toolchain.gguf_routed import LATENT_DENSE
from mlc_toolchain.gguf_t5 import T5, T5_ENCODER

GPT2 = GGUFArchitecture(
    model_type="gpt2",
    config={
        "n_embd": "embedding_length",
        "n_inner": "feed_forward_length",
        "n_layer": "block_count",
        "n_head": "attention.head_count",
        "n_positions": "context_length",
        "layer_norm_epsilon": "attention.layer_norm_epsilon",
    },
    optional={},
    fixed={"architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new"},
    layer="transformer.h",
    names={
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads={},
    transposed=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
)


def _gemma_scale(config: dict[str, Any]) -> dict[str, Any]:
    """The metadata lacks ``query_pre_attn_scalar``, which differs from the head size only in the 27B models."""
    is_27b = config["num_hidden_layers"] in GEMMA_27B_LAYERS
    size = config["hidden_size"] // config["num_attention_heads"] if is_27b else config["head_dim"]
    return {"query_pre_attn_scalar": size}


def _dense_heads(config: dict[str, Any]) -> dict[str, Any]:
    """EmbeddingGemma's heads, which the converter omits without ``--sentence-transformers-dense-modules``."""
    return {**_gemma_scale(config), "dense_sizes": [config.pop(key) for key in DENSE_HEADS if key in config]}


DENSE_HEADS = ("dense_2", "dense_3")
GEMMA_27B_LAYERS = (46, 62)  # of Gemma 2 and Gemma 3
SANDWICH = {**POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
GEMMA_NORMS = frozenset({"attn_norm", "ffn_norm", "output_norm"})
CAPS = {
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
}


QWEN2 = like_llama("qwen2", "Qwen2ForCausalLM")
QWEN3 = like_llama("qwen3", "Qwen3ForCausalLM", names=QK_NORMS)
GEMMA = like_llama("gemma", "GemmaForCausalLM", one_plus=GEMMA_NORMS)
GEMMA2 = like_llama(
    "gemma2",
    "Gemma2ForCausalLM",
    names=SANDWICH,
    optional={**WINDOW, **CAPS},
    one_plus=GEMMA_NORMS | set(POST_NORMS),
    finish=_gemma_scale,
)
GEMMA3 = like_llama(
    "gemma3_text",
    "Gemma3ForCausalLM",
    names={**SANDWICH, **QK_NORMS},
    optional={**WINDOW, "final_logit_softcapping": ("final_logit_softcapping",)},
    one_plus=GEMMA_NORMS | set(POST_NORMS) | set(QK_NORMS),
    finish=_gemma_scale,
)
GEMMA_EMBEDDING = replace(
    GEMMA3,
    model_type="embeddinggemma",
    fixed={**GEMMA3.fixed, "use_bidirectional_attention": True},
    names={**GEMMA3.names, "dense_2": "dense.0", "dense_3": "dense.1"},
    rows={"dense_2": "dense_2.weight", "dense_3": "dense_3.weight"},
    finish=_dense_heads,
    expected={"dense_2.weight": "vectors are those before the dense heads, not those of the published model"},
)
PHI3 = like_llama(
    "phi3",
    "Phi3ForCausalLM",
    names={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    optional={**WINDOW, **ROTARY, "original_max_position_embeddings": ("rope.scaling.original_context_length",)},
    finish=rotary_part,
)
# Only a sliding window distinguishes OLMo 3 from OLMo 2, whose config does not accept it.
OLMO2 = like_llama("olmo2", "Olmo2ForCausalLM", names={**POST_NORMS, **QK_NORMS}, optional=WINDOW)
SMOLLM3 = like_llama("smollm3", "SmolLM3ForCausalLM", heads=LLAMA.heads)
SEED_OSS = like_llama("seed_oss", "SeedOssForCausalLM", names={"post_attention_norm": "post_attention_layernorm"})
GRANITE = like_llama("granite", "GraniteForCausalLM", optional=SCALES, heads=LLAMA.heads)
INTERNLM2 = like_llama("llama", "LlamaForCausalLM", heads=LLAMA.heads, present=LLAMA.present)
STARCODER2 = like_llama(
    "starcoder2",
    "Starcoder2ForCausalLM",
    config={**LAYER_NORM_CONFIG, "norm_epsilon": LAYER_NORM_EPSILON},
    names={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    optional=WINDOW,
)
NEMOTRON = like_llama(
    "nemotron",
    "NemotronForCausalLM",
    config={**LAYER_NORM_CONFIG, "norm_eps": LAYER_NORM_EPSILON},
    optional=ROTARY,
    one_plus=GEMMA_NORMS,
    finish=rotary_part,
)
ARCHITECTURES = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3n": GEMMA3N,
    "gemma-embedding": GEMMA_EMBEDDING,
    "phi3": PHI3,
    "olmo2": OLMO2,
    "smollm3": SMOLLM3,
    "seed_oss": SEED_OSS,
    "granite": GRANITE,
    "internlm2": INTERNLM2,
    "starcoder2": STARCODER2,
    "nemotron": NEMOTRON,
    **FAMILIES,
    **STATE_SPACE,
    **RECURRENT,
    **ENCODERS,
    **LATENT_DENSE,
    "t5": T5,
    "t5encoder": T5_ENCODER,
}
"""By ``general.architecture``."""
