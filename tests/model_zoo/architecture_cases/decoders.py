"""Dense decoders like Llama."""

from __future__ import annotations

import transformers

from tests.model_zoo.architecture_cases.case import (
    ALPHA,
    HEADS,
    LONGROPE,
    MINISTRAL,
    MIXED,
    MULTIPLIERS,
    PARTIAL,
    WINDOWS,
    YARN,
    Case,
    rope,
)
from tests.model_zoo.checkpoint_forms import (
    baichuan,
    baichuan_alibi,
    chatglm,
    exaone,
    internlm,
    internlm2,
    mimo,
    minicpm,
    minicpm_multipliers,
    mistral3_text,
    orion,
    qwen,
)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
BIASES = {"attention_bias": True, "mlp_bias": True}
MULTI_HEAD = {"num_key_value_heads": 6}

CASES = (
    Case("doge", transformers.DogeConfig, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    Case("exaone", transformers.ExaoneConfig, {**BIASES, "tie_word_embeddings": True}),
    Case("exaone", transformers.ExaoneConfig, {"rope_parameters": LLAMA3}, "published", to_checkpoint=exaone),
    Case("qwen3", transformers.Qwen3Config, {**HEADS, "tie_word_embeddings": True}, quantized=True),
    Case(
        "qwen3",
        transformers.Qwen3Config,
        {**WINDOWS, "attention_bias": True, "use_sliding_window": True, "max_window_layers": 1},
        "window",
    ),
    Case("phi3", transformers.Phi3Config),
    Case(
        "phi3",
        transformers.Phi3Config,
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 12, "sliding_window": 7},
        "longrope",
    ),
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
    Case("starcoder2", transformers.Starcoder2Config, {"sliding_window": 7}, quantized=True),
    Case("starcoder2", transformers.Starcoder2Config, {"use_bias": False, "tie_word_embeddings": False}, "no-bias"),
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
    Case("mimo", transformers.Qwen2Config, to_checkpoint=mimo),
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
    Case("granite", transformers.GraniteConfig, {**BIASES, **MULTIPLIERS}),
    Case("minicpm", transformers.GraniteConfig, minicpm_multipliers(), to_checkpoint=minicpm),
    Case("cohere", transformers.CohereConfig, {"logit_scale": 0.5, "use_qk_norm": True}, quantized=True),
    Case("cohere", transformers.CohereConfig, {"logit_scale": 0.5, "attention_bias": True}, "bias"),
    Case("cohere2", transformers.Cohere2Config, {"logit_scale": 0.5, "sliding_window": 7, "layer_types": MIXED}),
    Case(
        "granite_swa",
        transformers.GraniteSWAConfig,
        {**MULTIPLIERS, "sliding_window": 7, "num_hidden_layers": 3, "layer_rope_theta": [1e4, 0, 5e4]},
    ),
    Case("glm", transformers.GlmConfig, {**HEADS, **rope(partial_rotary_factor=0.5)}),
    Case("glm4", transformers.Glm4Config, {**HEADS, **rope(partial_rotary_factor=0.5)}),
    Case("chatglm", transformers.GlmConfig, {**HEADS, **rope(partial_rotary_factor=0.5)}, to_checkpoint=chatglm),
    Case("ministral", transformers.MinistralConfig, {**WINDOWS, "layer_types": MIXED[::-1]}),
    Case("ministral3", transformers.Ministral3Config, {**HEADS, "rope_parameters": MINISTRAL}),
    Case(
        "mistral3",
        transformers.MistralConfig,
        {**HEADS, "sliding_window": None},
        "text-part",
        to_checkpoint=mistral3_text,
    ),
    Case("seed_oss", transformers.SeedOssConfig, {**HEADS, "attention_out_bias": True, "mlp_bias": True}),
    Case("exaone4", transformers.Exaone4Config, {"sliding_window": 7, "sliding_window_pattern": 2}),
    Case(
        "exaone4", transformers.Exaone4Config, {"sliding_window": None, "layer_types": ["full_attention"] * 2}, "full"
    ),
    Case("hunyuan_v1_dense", transformers.HunYuanDenseV1Config, {**HEADS, "rope_parameters": ALPHA}),
    Case("ernie4_5", transformers.Ernie4_5Config, {**HEADS, "use_bias": True}),
    Case("arcee", transformers.ArceeConfig, {**HEADS, "rope_parameters": YARN}),
    Case("apertus", transformers.ApertusConfig, {"rope_parameters": LLAMA3}),
)
