"""Rotary scalings from the frequency factors that a GGUF file stores: Llama 3's, and LongRoPE."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from mlc_errors import UnsupportedError

ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
FACTORS = (8.0, 16.0, 32.0)
LOW_FREQUENCY, HIGH_FREQUENCY = 1.0, 4.0
ORIGINAL_CONTEXT = 8192


def longrope_scaling(long: np.ndarray, short: np.ndarray, original_context: int) -> dict[str, Any]:
    """The rope_scaling entry of LongRoPE with these factors float32 [rotary_dim / 2], as the shortest decimals."""
    named = {"long_factor": long, "short_factor": short}
    factors = {name: [float(str(np.float32(v))) for v in values] for name, values in named.items()}
    return {"rope_type": "longrope", **factors, "original_max_position_embeddings": original_context}


def llama3_scaling(factors: np.ndarray, theta: float, where: str) -> dict[str, Any]:
    """The rope_scaling entry whose factors float32 [head_dim / 2] equal the given ones. Raises UnsupportedError."""
    for factor, original in product(FACTORS, (ORIGINAL_CONTEXT,)):
        if np.allclose(_llama3_factors(len(factors), theta, factor, original), factors, rtol=1e-4, atol=0):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW_FREQUENCY,
                "high_freq_factor": HIGH_FREQUENCY,
                "original_max_position_embeddings": original,
            }
    raise UnsupportedError(
        f"{ROPE_FACTORS} does not belong to a known rotary scaling (tried llama3 with factors {list(FACTORS)})",
        where=[where],
        hint="convert from the original Hugging Face checkpoint, whose config.json names the scaling",
    )


def _llama3_factors(half: int, theta: float, factor: float, original: int) -> np.ndarray:
    """The divisor of each frequency: 1 for short wavelengths, ``factor`` for long ones, smooth between (Llama 3.1)."""
    wavelength = 2 * np.pi * theta ** (np.arange(half) / half)
    smooth = (original / wavelength - LOW_FREQUENCY) / (HIGH_FREQUENCY - LOW_FREQUENCY)
    smooth = np.clip(smooth, 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)
