"""The table of architectures and variants that are compared with transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel

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

Tensors = dict[str, torch.Tensor]
ToCheckpoint = Callable[[dict[str, Any], Tensors], tuple[dict[str, Any], Tensors]]


@dataclass(frozen=True)
class Case:
    """One variant. config, options: transformers' class that computes the expected logits, and its arguments.

    norms_around_zero: norms store ``w - 1``. to_checkpoint: for an architecture of which transformers has no class, the
    config and tensors as its checkpoints have them. quantized: also compared with 4-bit weights.
    """

    name: str
    config: type[PretrainedConfig]
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    sizes: Mapping[str, Any] = field(default_factory=lambda: LLAMA_LIKE)
    norms_around_zero: bool = False
    to_checkpoint: ToCheckpoint | None = None
    quantized: bool = False

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    def model(self) -> PreTrainedModel:
        config = self.config(**{**COMMON, **self.sizes, **self.options})
        return transformers.AutoModelForCausalLM.from_config(config)


BIASES = {"attention_bias": True, "mlp_bias": True}
HEADS = {"head_dim": 12}
WINDOWS = {**HEADS, "sliding_window": 7}
MIXED = ["sliding_attention", "full_attention"]
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.3],
    "long_factor": [1.5, 4.0, 9.0],
    "partial_rotary_factor": 0.6,
}

CASES = [
    Case("qwen3", transformers.Qwen3Config, {**HEADS, "tie_word_embeddings": True}, quantized=True),
    Case(
        "qwen3",
        transformers.Qwen3Config,
        {**WINDOWS, "attention_bias": True, "use_sliding_window": True, "max_window_layers": 1},
        "window",
    ),
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
]
