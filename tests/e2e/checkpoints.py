"""Small Hugging Face checkpoints with random weights; sizes are not multiples of vector widths."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel

from tests.runtime.fake_library import byte_tokenizer

VOCAB, CONTEXT = 1003, 100
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
COMMON = {"vocab_size": VOCAB, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 2}
LAYERS = {"num_hidden_layers": 2, "max_position_embeddings": CONTEXT}


def configs() -> dict[str, PretrainedConfig]:
    """Configs by name, with grouped-query attention, biases, a tied head, odd sizes, scaled RoPE, a sliding window,
    experts."""
    return {
        "llama-bias-tied": transformers.LlamaConfig(
            hidden_size=100,
            intermediate_size=136,
            num_attention_heads=5,
            num_key_value_heads=1,
            head_dim=20,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            **COMMON,
            **LAYERS,
        ),
        "llama-odd-llama3": transformers.LlamaConfig(
            hidden_size=84,
            intermediate_size=93,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=20,
            rope_parameters=LLAMA3,
            tie_word_embeddings=False,
            **COMMON,
            **LAYERS,
        ),
        "mistral-window": transformers.MistralConfig(
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=21,
            tie_word_embeddings=False,
            **COMMON,
            **LAYERS,
        ),
        "mixtral": transformers.MixtralConfig(
            hidden_size=64,
            intermediate_size=40,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=5,
            num_experts_per_tok=2,
            tie_word_embeddings=False,
            **COMMON,
            **LAYERS,
        ),
        "qwen2-tied": transformers.Qwen2Config(
            hidden_size=96,
            intermediate_size=80,
            num_attention_heads=3,
            num_key_value_heads=1,
            tie_word_embeddings=True,
            **COMMON,
            **LAYERS,
        ),
        "gpt2-tied": transformers.GPT2Config(
            n_embd=75, n_inner=101, n_head=5, n_layer=2, n_positions=CONTEXT, tie_word_embeddings=True, **COMMON
        ),
    }


CLASSES = {
    "llama": transformers.LlamaForCausalLM,
    "mistral": transformers.MistralForCausalLM,
    "mixtral": transformers.MixtralForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "gpt2": transformers.GPT2LMHeadModel,
}


def random_model(name: str) -> PreTrainedModel:
    """Random weights: attention spreads over many positions, norms differ from 1 and biases from 0."""
    config = configs()[name]
    generator = torch.Generator().manual_seed(7)
    model = CLASSES[config.model_type](config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            center = 1.0 if parameter.ndim == 1 and parameter_name.endswith("weight") else 0.0
            spread = 0.12 if parameter.ndim > 1 else 0.3
            parameter.copy_(center + spread * torch.randn(parameter.shape, generator=generator))
    return model


def save_checkpoint(model: PreTrainedModel, folder: Path) -> None:
    """Save a model as ``save_pretrained`` does, with a byte-level tokenizer."""
    model.save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
