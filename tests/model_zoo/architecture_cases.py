"""The table of architectures and variants that are compared with transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import transformers
from transformers import PretrainedConfig, PreTrainedModel

from tests.model_zoo.checkpoint_forms import (
    ToCheckpoint,
    baichuan,
    baichuan_alibi,
    chatglm,
    deepseek,
    gemma3n_or_4,
    internlm,
    internlm2,
    kimi_k2,
    llama4,
    minicpm,
    minicpm_multipliers,
    mistral3,
    orion,
    phi_msft,
    qwen,
    qwen3_5,
    without_shared_gate,
)
from tests.model_zoo.phi3_v_reference import Phi3VConfig
from tests.model_zoo.rwkv_reference import Rwkv5Config, Rwkv6Config, Rwkv7Config

UNKNOWN_TO_AUTO = {transformers.Mistral4Config: transformers.Mistral4ForCausalLM}
VOCAB, CONTEXT = 261, 64
COMMON = {"vocab_size": VOCAB, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA_LIKE = {
    "hidden_size": 60,
    "intermediate_size": 52,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@dataclass(frozen=True)
class Case:
    """One variant. config, options: transformers' class that computes the expected logits, and its arguments.

    norms_around_zero: norms store ``w - 1``. to_checkpoint: for an architecture of which transformers has no class, the
    config and tensors as its checkpoints have them. quantized: also compared with 4-bit weights. adapt: changes the
    model of that class in place. alibi: the expected logits are those of ``config``'s class without rotation, and with
    ALiBi added to the scores. image_tokens: of an image, where the model takes images; these are compared too. grids:
    rows and columns of the tokens of two images, where the model takes images of any size.
    """

    name: str
    config: type[PretrainedConfig]
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    sizes: Mapping[str, Any] = field(default_factory=lambda: LLAMA_LIKE)
    norms_around_zero: bool = False
    to_checkpoint: ToCheckpoint | None = None
    quantized: bool = False
    adapt: Callable[[PreTrainedModel], None] | None = None
    alibi: bool = False
    image_tokens: int = 0
    grids: Sequence[tuple[int, int]] = ()

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    def model(self) -> PreTrainedModel:
        config = self.config(**deepcopy({**COMMON, **self.sizes, **self.options}))  # some configs write into theirs
        if self.image_tokens or self.grids:
            return transformers.AutoModelForImageTextToText.from_config(config)
        model = UNKNOWN_TO_AUTO.get(self.config, transformers.AutoModelForCausalLM.from_config)(config)
        if self.adapt:
            self.adapt(model)
        return model


GEMMA4 = {
    "head_dim": 12,
    "global_head_dim": 16,
    "sliding_window": 7,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "vocab_size_per_layer_input": 261,
    "hidden_size_per_layer_input": 6,
}
HEADS = {"head_dim": 12}
GEMMA3N = {
    "head_dim": 12,
    "sliding_window": 7,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 250,
    "hidden_size_per_layer_input": 6,
    "laurel_rank": 8,
    "altup_num_inputs": 3,
}
LLAMA4 = {
    **HEADS,
    "intermediate_size": 20,
    "intermediate_size_mlp": 52,
    "num_local_experts": 6,
    "num_experts_per_tok": 1,
    "no_rope_layer_interval": 2,
    "attention_chunk_size": 7,
    "floor_scale": 4,
    "attn_scale": 0.5,
}
BIASES = {"attention_bias": True, "mlp_bias": True}
MULTI_HEAD = {"num_key_value_heads": 6}
WINDOWS = {**HEADS, "sliding_window": 7}
MIXED = ["sliding_attention", "full_attention"]
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.3],
    "long_factor": [1.5, 4.0, 9.0],
    "partial_rotary_factor": 0.6,
}

NEOX_LIKE = {k: v for k, v in LLAMA_LIKE.items() if k != "num_key_value_heads"}
GPT2_LIKE = {"n_embd": 60, "n_inner": 52, "n_layer": 2, "n_head": 6, "n_positions": CONTEXT}
BLOOM_LIKE = {"hidden_size": 60, "n_layer": 2, "n_head": 6}
MPT_LIKE = {"d_model": 60, "n_heads": 6, "n_layers": 2, "max_seq_len": CONTEXT}
FALCON_LIKE = {k: v for k, v in NEOX_LIKE.items() if k != "intermediate_size"}
OPT_LIKE = {**NEOX_LIKE, "ffn_dim": 52, "word_embed_proj_dim": 60}
MULTIPLIERS = {
    "embedding_multiplier": 1.5,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.7,
    "logits_scaling": 2.0,
}
MINISTRAL = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
LONGROPE_OF_8 = {
    **LONGROPE,
    "short_factor": [1.0] * 4,
    "long_factor": [1.5, 4.0, 9.0, 11.0],
    "partial_rotary_factor": 1.0,
    "original_max_position_embeddings": 12,
}
PHI3_V = {
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 20,
        "intermediate_size": 28,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": 336,
        "patch_size": 84,
    },
    "img_processor": {"name": "clip_vision_model", "image_dim_out": 20, "num_img_tokens": 4},
    "embd_layer": {"embedding_cls": "image", "hd_transform_order": "sub_glb", "use_hd_transform": True},
}
# transformers takes the short factors for all texts, unlike the published code
PHIMOE_ROPE = {
    **LONGROPE_OF_8,
    "short_mscale": 1.1,
    "long_mscale": 1.3,
    "short_factor": [1.5, 4.0, 9.0, 11.0, 2.0],
    "long_factor": [1.5, 4.0, 9.0, 11.0, 2.0],
}
MSCALE = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}
LATENT_LIKE = {
    **LLAMA_LIKE,
    "num_key_value_heads": 6,
    "q_lora_rank": 28,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 14,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "n_shared_experts": 2,
}
LATENT_DENSE = {k: v for k, v in LATENT_LIKE.items() if "expert" not in k and k != "moe_intermediate_size"}
ROUTED = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
MIXTRAL_LIKE = {"num_local_experts": 6, "num_experts_per_tok": 2}
GROUPS = {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5}
DENSE_FIRST = {"first_k_dense_replace": 1}
ALPHA = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 50.0}
MAMBA2 = {"mamba_n_heads": 6, "mamba_d_state": 10, "mamba_chunk_size": 8}
HYBRID = ["linear_attention", "full_attention"]
MAMBA = {"hidden_size": 60, "num_hidden_layers": 2, "state_size": 10}
NEMOTRON_H = {"mamba_num_heads": 4, "mamba_head_dim": 10, "ssm_state_size": 10, "n_groups": 2, "chunk_size": 8}
MUP = {
    "embedding_multiplier": 1.5,
    "lm_head_multiplier": 0.5,
    "key_multiplier": 0.7,
    "attention_in_multiplier": 1.2,
    "attention_out_multiplier": 0.8,
    "ssm_in_multiplier": 1.3,
    "ssm_out_multiplier": 0.6,
    "ssm_multipliers": [0.9, 0.8, 0.7, 1.1, 1.2],
    "mlp_multipliers": [1.4, 0.6],
}
PARTIAL = {"partial_rotary_factor": 0.4}
NO_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": None}}
DELTA_NET_SIZES = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
}
DELTA_NET = {**HEADS, **DELTA_NET_SIZES}
SHARED_EXPERT = {**EXPERTS, "shared_expert_intermediate_size": 28}
RWKV_LIKE = {
    "hidden_size": 60,
    "num_hidden_layers": 2,
    "intermediate_size": 52,
    "head_size": 12,
    "context_length": CONTEXT,
    "rescale_every": 6,
}
RWKV7_LIKE = {
    "hidden_size": 60,
    "num_hidden_layers": 3,
    "intermediate_size": 52,
    "head_dim": 12,
    "norm_eps": 1e-5,
    "decay_low_rank_dim": 7,
    "gate_low_rank_dim": 9,
    "a_low_rank_dim": 6,
    "v_low_rank_dim": 5,
    "max_position_embeddings": CONTEXT,
}
IMAGE_TOKEN = 250
TOWER = {
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
}


def with_tower(
    text: type[PretrainedConfig], tower: type[PretrainedConfig], token: str = "image_token_index", **options: Any
) -> dict[str, Any]:
    """The options of a model that takes images: the configurations of its parts. options: of the text part."""
    return {
        "text_config": text(**{**COMMON, **LLAMA_LIKE, **options}),
        "vision_config": tower(**TOWER),
        token: IMAGE_TOKEN,
    }


IMAGES_OF_ANY_SIZE: Mapping[str, Any] = {"sizes": {}, "grids": [(2, 3), (3, 1)]}


def qwen_vl(text: Mapping[str, Any] | None = None, **tower: Any) -> dict[str, Any]:
    """The options of a model with positions in time, height and width. text: of the text part, with ``head_dim`` 12."""
    rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2] if text else [1, 2, 2]}
    names = ("image_token_id", "vision_start_token_id", "vision_end_token_id", "video_token_id")
    return {
        "text_config": {**COMMON, **LLAMA_LIKE, **(text or {}), "rope_parameters": rotation},
        "vision_config": {"depth": 2, "num_heads": 4, "patch_size": 7, **tower},
        **{name: IMAGE_TOKEN + i for i, name in enumerate(names)},
    }


def rope(**more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **more}}


CASES = [
    Case(
        "llava",
        transformers.LlavaConfig,
        with_tower(transformers.LlamaConfig, transformers.CLIPVisionConfig),
        sizes={},
        image_tokens=16,
    ),
    Case(
        "llava",
        transformers.LlavaConfig,
        {
            **with_tower(transformers.MistralConfig, transformers.SiglipVisionConfig, sliding_window=7),
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        "mistral-siglip",
        sizes={},
        image_tokens=16,
    ),
    Case("qwen3", transformers.Qwen3Config, {**HEADS, "tie_word_embeddings": True}, quantized=True),
    Case(
        "qwen3",
        transformers.Qwen3Config,
        {**WINDOWS, "attention_bias": True, "use_sliding_window": True, "max_window_layers": 1},
        "window",
    ),
    Case("qwen3_moe", transformers.Qwen3MoeConfig, {**HEADS, **EXPERTS, "norm_topk_prob": True}),
    Case(
        "gpt_oss",
        transformers.GptOssConfig,
        {**WINDOWS, "num_local_experts": 6, "num_experts_per_tok": 3, "rope_parameters": YARN, "swiglu_limit": 0.7},
    ),
    Case(
        "deepseek",
        transformers.Qwen2MoeConfig,
        {**EXPERTS, "qkv_bias": False, "mlp_only_layers": [0], "shared_expert_intermediate_size": 40},
        adapt=without_shared_gate,
        to_checkpoint=deepseek,
    ),
    Case(
        "deepseek_v2", transformers.DeepseekV2Config, {"q_lora_rank": None, "num_hidden_layers": 1}, sizes=LATENT_LIKE
    ),
    Case(
        "deepseek_v2",
        transformers.DeepseekV2Config,
        {"topk_method": "group_limited_greedy", **GROUPS, **DENSE_FIRST, "attention_bias": True},
        "groups-q-lora",
        LATENT_LIKE,
    ),
    Case(
        "deepseek_v3",
        transformers.DeepseekV3Config,
        {**GROUPS, **DENSE_FIRST, "rope_parameters": MSCALE},
        sizes=LATENT_LIKE,
        quantized=True,
    ),
    Case("qwen3_next", transformers.Qwen3NextConfig, {**DELTA_NET, **SHARED_EXPERT}, norms_around_zero=True),
    Case(
        "qwen3_5_text",
        transformers.Qwen3_5TextConfig,
        {**DELTA_NET, "tie_word_embeddings": True},
        norms_around_zero=True,
    ),
    Case(
        "qwen3_5",
        transformers.Qwen3_5TextConfig,
        {**DELTA_NET, "layer_types": None, "num_hidden_layers": 4},
        norms_around_zero=True,
        to_checkpoint=qwen3_5,
    ),
    Case("qwen3_5_moe_text", transformers.Qwen3_5MoeTextConfig, {**DELTA_NET, **SHARED_EXPERT}, norms_around_zero=True),
    Case(
        "qwen3_5_moe",
        transformers.Qwen3_5MoeTextConfig,
        {**DELTA_NET, **SHARED_EXPERT},
        norms_around_zero=True,
        to_checkpoint=qwen3_5,
    ),
    Case("kimi_k2", transformers.DeepseekV3Config, {**GROUPS, **DENSE_FIRST}, sizes=LATENT_LIKE, to_checkpoint=kimi_k2),
    Case("glm4_moe_lite", transformers.Glm4MoeLiteConfig, sizes=LATENT_LIKE),
    Case(
        "mistral4",
        transformers.Mistral4Config,
        {**GROUPS, "num_hidden_layers": 1, "rope_parameters": MINISTRAL},
        sizes=LATENT_LIKE,
    ),
    Case("minicpm3", transformers.MiniCPM3Config, {"rope_parameters": LONGROPE_OF_8}, sizes=LATENT_DENSE),
    Case("glm4_moe", transformers.Glm4MoeConfig, {**HEADS, **ROUTED, "use_qk_norm": True, "attention_bias": True}),
    Case("solar_open", transformers.SolarOpenConfig, {**HEADS, **ROUTED, "first_k_dense_replace": 0}),
    Case("dots1", transformers.Dots1Config, {**ROUTED, "sliding_window": 7, "max_window_layers": 1}),
    Case(
        "exaone_moe",
        transformers.ExaoneMoeConfig,
        {**EXPERTS, **GROUPS, "sliding_window": 7, "sliding_window_pattern": 2},
    ),
    Case("olmoe", transformers.OlmoeConfig, {"num_experts": 6, "num_experts_per_tok": 3}),
    Case("minimax_m2", transformers.MiniMaxM2Config, {**HEADS, **MIXTRAL_LIKE, **rope(partial_rotary_factor=0.5)}),
    Case(
        "phimoe",
        transformers.PhimoeConfig,
        {
            **MIXTRAL_LIKE,
            "attention_bias": True,
            "lm_head_bias": True,
            "router_jitter_noise": 0.2,
            "rope_parameters": PHIMOE_ROPE,
        },
    ),
    Case("granitemoe", transformers.GraniteMoeConfig, {**MULTIPLIERS, **MIXTRAL_LIKE, "attention_bias": True}),
    Case(
        "ernie4_5_moe",
        transformers.Ernie4_5_MoeConfig,
        {"moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": 20, "use_bias": True, "tie_word_embeddings": False},
    ),
    Case(
        "hunyuan_v1_moe",
        transformers.HunYuanMoEV1Config,
        {**HEADS, "num_experts": 6, "moe_topk": 3, "rope_parameters": ALPHA},
    ),
    Case("llama4_text", transformers.Llama4TextConfig, {**LLAMA4, "interleave_moe_layer_step": 2}),
    Case(
        "llama4",
        transformers.Llama4TextConfig,
        {**LLAMA4, "num_experts_per_tok": 2, "no_rope_layers": [1, 0], "use_qk_norm": False},
        to_checkpoint=llama4,
    ),
    Case("rwkv5", Rwkv5Config, {"model_version": "5_2"}, sizes=RWKV_LIKE),
    Case("rwkv6", Rwkv6Config, {"time_mix_extra_dim": 7, "time_decay_extra_dim": 9}, sizes=RWKV_LIKE),
    Case("rwkv7", Rwkv7Config, sizes=RWKV7_LIKE),
    Case("gemma", transformers.GemmaConfig, {**HEADS, "num_key_value_heads": 1}, norms_around_zero=True),
    Case("gemma2", transformers.Gemma2Config, {**WINDOWS, "query_pre_attn_scalar": 9}, norms_around_zero=True),
    Case(
        "gemma3_text",
        transformers.Gemma3TextConfig,
        {
            **WINDOWS,
            "num_hidden_layers": 3,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 9,
            "final_logit_softcapping": 4.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        norms_around_zero=True,
        quantized=True,
    ),
    Case(
        "gemma3",
        transformers.Gemma3Config,
        {
            **with_tower(
                transformers.Gemma3TextConfig,
                transformers.SiglipVisionConfig,
                **{**WINDOWS, "layer_types": MIXED, "query_pre_attn_scalar": 9},
            ),
            "mm_tokens_per_image": 4,
        },
        sizes={},
        norms_around_zero=True,
        image_tokens=4,
    ),
    Case(
        "gemma3n_text", transformers.Gemma3nTextConfig, {**GEMMA3N, "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0]}
    ),
    Case(
        "gemma3n",
        transformers.Gemma3nTextConfig,
        {**GEMMA3N, "num_hidden_layers": 2, "layer_types": MIXED, "num_kv_shared_layers": 0, "altup_active_idx": 1},
        to_checkpoint=gemma3n_or_4,
    ),
    Case("gemma4_text", transformers.Gemma4TextConfig, GEMMA4),
    Case("vaultgemma", transformers.VaultGemmaConfig, {**WINDOWS, "query_pre_attn_scalar": 9}, norms_around_zero=True),
    Case(
        "gemma4_text",
        transformers.Gemma4TextConfig,
        {
            **GEMMA4,
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
            "num_hidden_layers": 2,
            "layer_types": MIXED,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "final_logit_softcapping": 4.0,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 3,
            "moe_intermediate_size": 20,
        },
        "experts",
    ),
    Case(
        "gemma4",
        transformers.Gemma4TextConfig,
        {**GEMMA4, "num_hidden_layers": 2, "layer_types": MIXED, "num_kv_shared_layers": 0},
        to_checkpoint=gemma3n_or_4,
    ),
    *(
        Case(
            name,
            config,
            with_tower(transformers.LlamaConfig, tower, "image_token_id", tie_word_embeddings=tied)
            | {"tie_word_embeddings": tied},
            sizes={},
            image_tokens=4,
        )
        for name, config, tower, tied in (
            ("idefics3", transformers.Idefics3Config, transformers.Idefics3VisionConfig, False),
            ("smolvlm", transformers.SmolVLMConfig, transformers.SmolVLMVisionConfig, True),
        )
    ),
    Case(
        "qwen2_vl", transformers.Qwen2VLConfig, qwen_vl(embed_dim=48, hidden_size=60, mlp_ratio=2), **IMAGES_OF_ANY_SIZE
    ),
    Case(
        "qwen2_5_vl",
        transformers.Qwen2_5_VLConfig,
        qwen_vl(hidden_size=48, intermediate_size=60, out_hidden_size=60, window_size=28, fullatt_block_indexes=[1]),
        **IMAGES_OF_ANY_SIZE,
    ),
    Case(
        "qwen3_vl",
        transformers.Qwen3VLConfig,
        qwen_vl(
            depth=3,
            hidden_size=48,
            intermediate_size=60,
            out_hidden_size=60,
            num_position_embeddings=25,
            deepstack_visual_indexes=[0, 1],
            text=HEADS,
        ),
        **IMAGES_OF_ANY_SIZE,
    ),
    Case("phi3", transformers.Phi3Config),
    Case(
        "phi3",
        transformers.Phi3Config,
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 12, "sliding_window": 7},
        "longrope",
    ),
    Case("phi3_v", Phi3VConfig, PHI3_V),
    Case("smollm3", transformers.SmolLM3Config, {"num_hidden_layers": 3, "no_rope_layer_interval": 2}),
    Case(
        "smollm3",
        transformers.SmolLM3Config,
        {
            **BIASES,
            "num_hidden_layers": 3,
            "no_rope_layers": [0, 1, 1],
            "use_sliding_window": True,
            "sliding_window": 7,
            "rope_parameters": YARN,
        },
        "window-yarn",
    ),
    Case("olmo", transformers.OlmoConfig, {"clip_qkv": 0.6}),
    Case("olmo2", transformers.Olmo2Config, {"attention_bias": True}),
    Case("olmo3", transformers.Olmo3Config, {"sliding_window": 7, "layer_types": MIXED}),
    Case("olmo_hybrid", transformers.OlmoHybridConfig, {**DELTA_NET_SIZES, **NO_ROPE}),
    Case(
        "olmo_hybrid",
        transformers.OlmoHybridConfig,
        {"layer_types": HYBRID, "linear_allow_neg_eigval": False, "attention_bias": True},
        "rope",
    ),
    Case("starcoder2", transformers.Starcoder2Config, {"sliding_window": 7}, quantized=True),
    Case("starcoder2", transformers.Starcoder2Config, {"use_bias": False, "tie_word_embeddings": False}, "no-bias"),
    Case("gpt_neox", transformers.GPTNeoXConfig, rope(**PARTIAL), sizes=NEOX_LIKE, quantized=True),
    Case(
        "gpt_neox",
        transformers.GPTNeoXConfig,
        {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new"},
        "sequential",
        NEOX_LIKE,
    ),
    Case("gptj", transformers.GPTJConfig, {"rotary_dim": 6}, sizes=GPT2_LIKE),
    Case("phi", transformers.PhiConfig, rope(**PARTIAL)),
    Case("phi", transformers.PhiConfig, {"qk_layernorm": True, **rope(**PARTIAL)}, "qk-norm"),
    Case("phi-msft", transformers.PhiConfig, rope(**PARTIAL), to_checkpoint=phi_msft),
    Case("stablelm", transformers.StableLmConfig, {"use_qkv_bias": True, **rope(**PARTIAL)}),
    Case(
        "stablelm",
        transformers.StableLmConfig,
        {"qk_layernorm": True, "use_parallel_residual": True, **rope(**PARTIAL)},
        "parallel-qk-norm",
    ),
    Case("helium", transformers.HeliumConfig, {"head_dim": 10, "attention_bias": True}),
    Case("internlm3", transformers.InternLM3Config, {**HEADS, "attention_bias": True, "mlp_bias": True}),
    Case("iquestcoder", transformers.IQuestCoderConfig, HEADS),
    Case("cwm", transformers.CwmConfig, {**WINDOWS, "layer_types": MIXED, "rope_parameters": LLAMA3}),
    Case("internlm2", transformers.LlamaConfig, {}, to_checkpoint=internlm2),
    Case("internlm", transformers.LlamaConfig, {"attention_bias": True, **MULTI_HEAD}, to_checkpoint=internlm),
    Case("baichuan", transformers.LlamaConfig, MULTI_HEAD, to_checkpoint=baichuan),
    Case("baichuan", transformers.LlamaConfig, MULTI_HEAD, "alibi", to_checkpoint=baichuan_alibi, alibi=True),
    Case("orion", transformers.StableLmConfig, rope(partial_rotary_factor=1.0), to_checkpoint=orion),
    Case("qwen", transformers.Qwen2Config, MULTI_HEAD, to_checkpoint=qwen),
    Case("jais2", transformers.Jais2Config, HEADS),
    Case("nanochat", transformers.NanoChatConfig),
    Case("nemotron", transformers.NemotronConfig, rope(**PARTIAL), norms_around_zero=True),
    Case(
        "nemotron_h",
        transformers.NemotronHConfig,
        {**HEADS, **NEMOTRON_H, "hybrid_override_pattern": "M-*", "time_step_min": 0.6, "mlp_bias": True},
        quantized=True,
    ),
    Case(
        "nemotron_h",
        transformers.NemotronHConfig,
        {**HEADS, **NEMOTRON_H, "hybrid_override_pattern": "ME*E", "moe_latent_size": 28, "use_bias": True}
        | {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5, "n_routed_experts": 6}
        | {"moe_intermediate_size": 20, "moe_shared_expert_intermediate_size": 24},
        "latent-experts",
    ),
    Case("granite", transformers.GraniteConfig, {**BIASES, **MULTIPLIERS}),
    Case(
        "granitemoehybrid",
        transformers.GraniteMoeHybridConfig,
        {**MAMBA2, **MULTIPLIERS, "mamba_n_groups": 2, "layer_types": HYBRID, "shared_intermediate_size": 44}
        | {"num_local_experts": 5, "num_experts_per_tok": 2},
    ),
    Case(
        "granitemoehybrid",
        transformers.GraniteMoeHybridConfig,
        {**MAMBA2, "layer_types": HYBRID, "shared_intermediate_size": 44, "num_local_experts": 0}
        | {"position_embedding_type": "rope", "mamba_proj_bias": True},
        "dense-rope",
        quantized=True,
    ),
    Case("minicpm", transformers.GraniteConfig, minicpm_multipliers(), to_checkpoint=minicpm),
    Case("cohere", transformers.CohereConfig, {"logit_scale": 0.5, "use_qk_norm": True}, quantized=True),
    Case("cohere", transformers.CohereConfig, {"logit_scale": 0.5, "attention_bias": True}, "bias"),
    Case("cohere2", transformers.Cohere2Config, {"logit_scale": 0.5, "sliding_window": 7, "layer_types": MIXED}),
    Case(
        "cohere2_moe",
        transformers.Cohere2MoeConfig,
        {
            **WINDOWS,
            "layer_types": ["full_attention", "sliding_attention"],
            "mlp_layer_types": ["dense", "sparse"],
            "logit_scale": 0.5,
            "prefix_dense_intermediate_size": 44,
            "intermediate_size": 20,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "num_shared_experts": 2,
        },
    ),
    Case(
        "granite_swa",
        transformers.GraniteSWAConfig,
        {**MULTIPLIERS, "sliding_window": 7, "num_hidden_layers": 3, "layer_rope_theta": [1e4, 0, 5e4]},
    ),
    Case("gpt_bigcode", transformers.GPTBigCodeConfig, sizes=GPT2_LIKE),
    Case("gpt_bigcode", transformers.GPTBigCodeConfig, {"multi_query": False}, "multi-head", GPT2_LIKE),
    Case("glm", transformers.GlmConfig, {**HEADS, **rope(partial_rotary_factor=0.5)}),
    Case("glm4", transformers.Glm4Config, {**HEADS, **rope(partial_rotary_factor=0.5)}),
    Case("chatglm", transformers.GlmConfig, {**HEADS, **rope(partial_rotary_factor=0.5)}, to_checkpoint=chatglm),
    Case("ministral3", transformers.Ministral3Config, {**HEADS, "rope_parameters": MINISTRAL}),
    Case("mistral3", transformers.MistralConfig, {**HEADS, "sliding_window": None}, to_checkpoint=mistral3),
    Case("lfm2", transformers.Lfm2Config, {"layer_types": ["conv", "full_attention"], "block_multiple_of": 4}),
    Case(
        "lfm2",
        transformers.Lfm2Config,
        {
            "num_hidden_layers": 3,
            "full_attn_idxs": [1],
            "conv_bias": True,
            "conv_L_cache": 4,
            "block_auto_adjust_ff_dim": False,
        },
        "bias",
        quantized=True,
    ),
    Case(
        "lfm2_moe",
        transformers.Lfm2MoeConfig,
        {**EXPERTS, "num_dense_layers": 1, "layer_types": ["full_attention", "conv"], "routed_scaling_factor": 1.5},
    ),
    Case("mamba", transformers.MambaConfig, {"use_bias": True, "time_step_rank": 7}, sizes=MAMBA, quantized=True),
    Case("falcon_mamba", transformers.FalconMambaConfig, {"conv_kernel": 3}, sizes=MAMBA),
    Case(
        "mamba2",
        transformers.Mamba2Config,
        {"num_heads": 6, "head_dim": 20, "n_groups": 2, "use_bias": True},
        sizes=MAMBA,
    ),
    Case("seed_oss", transformers.SeedOssConfig, {**HEADS, "attention_out_bias": True, "mlp_bias": True}),
    Case("exaone4", transformers.Exaone4Config, {"sliding_window": 7, "sliding_window_pattern": 2}),
    Case(
        "exaone4", transformers.Exaone4Config, {"sliding_window": None, "layer_types": ["full_attention"] * 2}, "full"
    ),
    Case("hy_v3", transformers.HYV3Config, {**HEADS, **EXPERTS}),
    Case("hunyuan_v1_dense", transformers.HunYuanDenseV1Config, {**HEADS, "rope_parameters": ALPHA}),
    Case("ernie4_5", transformers.Ernie4_5Config, {**HEADS, "use_bias": True}),
    Case("arcee", transformers.ArceeConfig, {**HEADS, "rope_parameters": YARN}),
    Case(
        "afmoe",
        transformers.AfmoeConfig,
        {**WINDOWS, **EXPERTS, "layer_types": MIXED, "num_dense_layers": 1, "route_scale": 1.5, "mup_enabled": True},
    ),
    Case("apertus", transformers.ApertusConfig, {"rope_parameters": LLAMA3}),
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
    Case("falcon_h1", transformers.FalconH1Config, {**MAMBA2, **MUP, "mamba_d_ssm": 42}),
    Case(
        "falcon_h1",
        transformers.FalconH1Config,
        {**MAMBA2, "mamba_d_ssm": 48, "mamba_n_groups": 2, "mamba_rms_norm": True, "time_step_limit": (0.5, 1.5)},
        "norm",
    ),
    Case("mpt", transformers.MptConfig, {"attn_config": {"clip_qkv": 0.7}}, sizes=MPT_LIKE),
    Case("bloom", transformers.BloomConfig, sizes=BLOOM_LIKE),
    Case("opt", transformers.OPTConfig, sizes=OPT_LIKE),
    Case("opt", transformers.OPTConfig, {"enable_bias": False, "tie_word_embeddings": False}, "no-bias", OPT_LIKE),
]
