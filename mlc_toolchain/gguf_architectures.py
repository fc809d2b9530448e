"""How llama.cpp's converter renamed, reordered and shifted the tensors of each architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class GGUFArchitecture:
    """How llama.cpp's converter renamed a model.

    config: Hugging Face key -> metadata key under the architecture's prefix. optional: likewise, the first key
    present. fixed: config values that the architecture implies. layer: the Hugging Face layer prefix. names: tensor
    name without layer prefix -> Hugging Face name. heads: tensors whose rows were reordered per attention head, with
    the metadata key of the number of heads. transposed: stored [out, in] where the checkpoint has [in, out]. one_plus:
    norms stored as ``w + 1`` where the checkpoint has w. finish: entries that follow from the rest of the config.
    """

    model_type: str
    config: Mapping[str, str]
    optional: Mapping[str, tuple[str, ...]]
    fixed: Mapping[str, Any]
    layer: str
    names: Mapping[str, str]
    embedding: str
    head: str
    heads: Mapping[str, str]
    transposed: frozenset[str] = frozenset()
    one_plus: frozenset[str] = frozenset()
    finish: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: {}


LLAMA = GGUFArchitecture(
    model_type="llama",
    config={
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    },
    optional={
        "num_key_value_heads": ("attention.head_count_kv",),
        "rope_theta": ("rope.freq_base",),
        "head_dim": ("attention.key_length", "rope.dimension_count"),
    },
    fixed={"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rope_theta": 10000.0},
    layer="model.layers",
    names={
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "output": "lm_head",
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads={"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"},
)
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


def _rotary_part(config: dict[str, Any]) -> dict[str, Any]:
    """``rope.dimension_count`` counts rotated elements; Hugging Face's key is their part of a head."""
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotated = config.pop("rotary_dim", head_dim)
    return {"partial_rotary_factor": rotated / head_dim}


def _gemma_scale(config: dict[str, Any]) -> dict[str, Any]:
    """The metadata lacks the scale of scores, which differs from the head size in the 27B models only."""
    is_27b = config["num_hidden_layers"] in GEMMA_27B_LAYERS
    size = config["hidden_size"] // config["num_attention_heads"] if is_27b else config["head_dim"]
    return {"query_pre_attn_scalar": size}


GEMMA_27B_LAYERS = (46, 62)  # of Gemma 2 and Gemma 3
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
SANDWICH = {**POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
GEMMA_NORMS = frozenset({"attn_norm", "ffn_norm", "output_norm"})
WINDOW = {"sliding_window": ("attention.sliding_window",)}
CAPS = {
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
}
ROTARY = {"rotary_dim": ("rope.dimension_count",)}
SCALES = {
    "embedding_multiplier": ("embedding_scale",),
    "attention_multiplier": ("attention.scale",),
    "residual_multiplier": ("residual_scale",),
    "logits_scaling": ("logit_scale",),
}


def _like_llama(model_type: str, class_name: str, **changes: Any) -> GGUFArchitecture:
    """Llama's names in the order of the checkpoint's rows, with other fixed values; ``changes`` replace fields."""
    fixed = {"architectures": [class_name], **changes.pop("fixed", {})}
    optional = {**LLAMA.optional, "head_dim": ("attention.key_length",), **changes.pop("optional", {})}
    names = {**LLAMA.names, **changes.pop("names", {})}
    base: dict[str, Any] = {"heads": {}, **changes}
    return replace(LLAMA, model_type=model_type, fixed=fixed, optional=optional, names=names, **base)


_LAYER_NORM_CONFIG = {k: v for k, v in LLAMA.config.items() if k != "rms_norm_eps"}
LAYER_NORM_EPSILON = "attention.layer_norm_epsilon"
QWEN2 = _like_llama("qwen2", "Qwen2ForCausalLM")
QWEN3 = _like_llama("qwen3", "Qwen3ForCausalLM", names=QK_NORMS)
GEMMA = _like_llama("gemma", "GemmaForCausalLM", one_plus=GEMMA_NORMS)
GEMMA2 = _like_llama(
    "gemma2",
    "Gemma2ForCausalLM",
    names=SANDWICH,
    optional={**WINDOW, **CAPS},
    one_plus=GEMMA_NORMS | set(POST_NORMS),
    finish=_gemma_scale,
)
GEMMA3 = _like_llama(
    "gemma3_text",
    "Gemma3ForCausalLM",
    names={**SANDWICH, **QK_NORMS},
    optional={**WINDOW, "final_logit_softcapping": ("final_logit_softcapping",)},
    one_plus=GEMMA_NORMS | set(POST_NORMS) | set(QK_NORMS),
    finish=_gemma_scale,
)
PHI3 = _like_llama(
    "phi3",
    "Phi3ForCausalLM",
    names={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    optional={**WINDOW, **ROTARY},
    finish=_rotary_part,
)
# A window makes it OLMo 3, which the metadata does not tell apart otherwise; the config of OLMo 2 refuses it.
OLMO2 = _like_llama("olmo2", "Olmo2ForCausalLM", names={**POST_NORMS, **QK_NORMS}, optional=WINDOW)
SMOLLM3 = _like_llama("smollm3", "SmolLM3ForCausalLM", heads=LLAMA.heads)
SEED_OSS = _like_llama("seed_oss", "SeedOssForCausalLM", names={"post_attention_norm": "post_attention_layernorm"})
GRANITE = _like_llama("granite", "GraniteForCausalLM", optional=SCALES, heads=LLAMA.heads)
INTERNLM2 = _like_llama("llama", "LlamaForCausalLM", heads=LLAMA.heads)
STARCODER2 = _like_llama(
    "starcoder2",
    "Starcoder2ForCausalLM",
    config={**_LAYER_NORM_CONFIG, "norm_epsilon": LAYER_NORM_EPSILON},
    names={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    optional=WINDOW,
)
NEMOTRON = _like_llama(
    "nemotron",
    "NemotronForCausalLM",
    config={**_LAYER_NORM_CONFIG, "norm_eps": LAYER_NORM_EPSILON},
    optional=ROTARY,
    one_plus=GEMMA_NORMS,
    finish=_rotary_part,
)
ARCHITECTURES = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "phi3": PHI3,
    "olmo2": OLMO2,
    "smollm3": SMOLLM3,
    "seed_oss": SEED_OSS,
    "granite": GRANITE,
    "internlm2": INTERNLM2,
    "starcoder2": STARCODER2,
    "nemotron": NEMOTRON,
}
"""By ``general.architecture``."""
