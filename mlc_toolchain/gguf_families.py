"""GGUF architectures that differ from Llama in norms, in the parts of a layer, or in rotary embedding.

The reordered rows are those in ``convert_hf_to_gguf.py`` of llama.cpp; names not listed here are Llama's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_errors import UnsupportedError
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

LAYER_NORM = {**LAYER_NORM_CONFIG, "layer_norm_eps": LAYER_NORM_EPSILON}
CLIP = {"clip_qkv": ("attention.clamp_kqv",)}
PARALLEL = {"use_parallel_residual": ("use_parallel_residual",)}
LOGIT_SCALE = {"logit_scale": ("logit_scale",)}


def _older(
    model_type: str,
    class_name: str,
    layer: str,
    names: Mapping[str, str],
    *,
    epsilon: str = "layer_norm_epsilon",
    **more: Any,
) -> GGUFArchitecture:
    """An older architecture: layer norms, one tensor for queries, keys and values, and names of its own."""
    optional = {"num_key_value_heads": LLAMA.optional["num_key_value_heads"], **more.pop("optional", {})}
    return GGUFArchitecture(
        model_type=model_type,
        config={**LAYER_NORM_CONFIG, epsilon: LAYER_NORM_EPSILON},
        optional=optional,
        fixed={"architectures": [class_name], **more.pop("fixed", {})},
        layer=layer,
        names=names,
        embedding="token_embd.weight",
        head="output.weight",
        heads={},
        **more,
    )


def _falcon_form(config: dict[str, Any]) -> dict[str, Any]:
    """Falcon 7B has one key head; later models have several, and here one norm for both parts of a layer."""
    grouped = config["num_key_value_heads"] > 1
    return {
        "multi_query": not grouped,
        "new_decoder_architecture": grouped,
        **({"num_ln_in_parallel_attn": 1} if grouped else {}),
    }


def _whole_window(config: dict[str, Any]) -> dict[str, Any]:
    """A file without a window belongs to a model without one."""
    return {"sliding_window": config.get("sliding_window")}


def _attention_scale(config: dict[str, Any]) -> dict[str, Any]:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {"attention_multiplier": config.get("attention_multiplier", head_dim**-0.5)}


def _rotated_baichuan(config: dict[str, Any]) -> dict[str, Any]:
    if config["num_hidden_layers"] == BAICHUAN_ALIBI_LAYERS:
        raise UnsupportedError("Baichuan 13B in GGUF form is not supported", hint="convert the original checkpoint")
    return {}


BAICHUAN_ALIBI_LAYERS = 40
GPT_NEOX = _older(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    "gpt_neox.layers",
    {
        "token_embd": "gpt_neox.embed_in",
        "output_norm": "gpt_neox.final_layer_norm",
        "output": "embed_out",
        "attn_norm": "input_layernorm",
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    epsilon="layer_norm_eps",
    optional={**ROTARY, **PARALLEL, "rope_theta": ("rope.freq_base",)},
    grouped=frozenset({"attn_qkv"}),
    present={"attention_bias": "attn_qkv.bias"},
    finish=rotary_part,
)
BLOOM = _older(
    "bloom",
    "BloomForCausalLM",
    "transformer.h",
    {
        "token_embd": "transformer.word_embeddings",
        "token_embd_norm": "transformer.word_embeddings_layernorm",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
        "attn_norm": "input_layernorm",
        "attn_qkv": "self_attention.query_key_value",
        "attn_output": "self_attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    grouped=frozenset({"attn_qkv"}),
)
FALCON = _older(
    "falcon",
    "FalconForCausalLM",
    "transformer.h",
    {
        "token_embd": "transformer.word_embeddings",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
        "attn_norm": "input_layernorm",
        "attn_qkv": "self_attention.query_key_value",
        "attn_output": "self_attention.dense",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    optional={"rope_theta": ("rope.freq_base",)},
    grouped=frozenset({"attn_qkv"}),
    finish=_falcon_form,
)
MPT = _older(
    "mpt",
    "MPTForCausalLM",
    "transformer.blocks",
    {
        "token_embd": "transformer.wte",
        "output_norm": "transformer.norm_f",
        "output": "lm_head",
        "attn_norm": "norm_1",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "ffn_norm": "norm_2",
        "ffn_up": "ffn.up_proj",
        "ffn_down": "ffn.down_proj",
    },
    optional=CLIP,
)
STARCODER = _older(
    "gpt_bigcode",
    "GPTBigCodeForCausalLM",
    "transformer.h",
    {
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
    finish=lambda config: {"multi_query": config["num_key_value_heads"] == 1},
)
PHI2 = like_llama(
    "phi",
    "PhiForCausalLM",
    config=LAYER_NORM,
    names={
        "output_norm": "model.final_layernorm",
        "attn_output": "self_attn.dense",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    },
    optional=ROTARY,
    fixed={"hidden_act": "gelu_new"},
    finish=rotary_part,
)
STABLELM = like_llama(
    "stablelm",
    "StableLmForCausalLM",
    config=LAYER_NORM,
    optional={**ROTARY, **PARALLEL},
    present={"use_qkv_bias": "attn_q.bias"},
    finish=rotary_part,
)
ORION = like_llama("orion", "OrionForCausalLM", config=LAYER_NORM)
COMMAND_R = like_llama(
    "cohere", "CohereForCausalLM", config=LAYER_NORM, optional=LOGIT_SCALE, present={"attention_bias": "attn_q.bias"}
)
COHERE2 = like_llama("cohere2", "Cohere2ForCausalLM", config=LAYER_NORM, optional={**LOGIT_SCALE, **WINDOW})
EXAONE = like_llama("exaone", "ExaoneForCausalLM")
EXAONE4 = like_llama(
    "exaone4", "Exaone4ForCausalLM", names={**QK_NORMS, **POST_NORMS}, optional=WINDOW, finish=_whole_window
)
HUNYUAN = like_llama(
    "hunyuan_v1_dense",
    "HunYuanDenseV1ForCausalLM",
    names={"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
)
ERNIE = like_llama("ernie4_5", "Ernie4_5ForCausalLM", present={"use_bias": "attn_q.bias"})
GLM4 = like_llama(
    "glm4",
    "Glm4ForCausalLM",
    names={
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
        "ffn_up": "mlp.gate_up_proj",
    },
    optional=ROTARY,
    present={"attention_bias": "attn_q.bias"},
    finish=rotary_part,
)
OLMO = like_llama("olmo", "OlmoForCausalLM", config=LAYER_NORM_CONFIG, optional=CLIP, heads=LLAMA.heads)
ARCEE = like_llama("arcee", "ArceeForCausalLM", heads=LLAMA.heads, fixed={"hidden_act": "relu2"}, present=LLAMA.present)
MINICPM = like_llama("granite", "GraniteForCausalLM", optional=SCALES, heads=LLAMA.heads, finish=_attention_scale)
BAICHUAN = like_llama("llama", "LlamaForCausalLM", heads=LLAMA.heads, present=LLAMA.present, finish=_rotated_baichuan)
FAMILIES = {
    "gptneox": GPT_NEOX,
    "bloom": BLOOM,
    "falcon": FALCON,
    "mpt": MPT,
    "starcoder": STARCODER,
    "phi2": PHI2,
    "stablelm": STABLELM,
    "orion": ORION,
    "command-r": COMMAND_R,
    "cohere2": COHERE2,
    "exaone": EXAONE,
    "exaone4": EXAONE4,
    "hunyuan-dense": HUNYUAN,
    "ernie4_5": ERNIE,
    "glm4": GLM4,
    "olmo": OLMO,
    "arcee": ARCEE,
    "minicpm": MINICPM,
    "baichuan": BAICHUAN,
}
"""By ``general.architecture``."""
