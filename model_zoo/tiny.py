"""Sizes of the small configurations for tests of architectures; not multiples of vector widths."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 1003,
    "hidden_size": 100,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 20,
    "context_window_size": 256,
}
