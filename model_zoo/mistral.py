"""Mistral: Llama with sliding-window attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import llama
from model_zoo.architecture import Architecture
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class MistralConfig(llama.LlamaConfig):
    model_type: ClassVar[str] = "mistral"
    chat_keys: ClassVar[tuple[str, ...]] = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "rms_norm_eps",
        "vocab_size",
        "position_embedding_base",
        "num_key_value_heads",
        "head_dim",
        "context_window_size",
        "sliding_window_size",
        "prefill_chunk_size",
        "tensor_parallel_shards",
        "max_batch_size",
    )

    sliding_window: int | None = 4096  # type: ignore[misc]  # a field here, a class constant of the base
    attention_sink_size: int | None = None  # type: ignore[misc]  # likewise


TINY = MistralConfig(
    vocab_size=1003,
    hidden_size=100,
    intermediate_size=136,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=20,
    sliding_window=21,
    context_window_size=256,
)
ARCHITECTURE = Architecture("mistral", MistralConfig, llama.LlamaForCausalLM, llama_names, tiny=TINY)
