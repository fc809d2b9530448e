"""Recover rope_scaling entries (Llama 3, LongRoPE) from the frequency factors that a GGUF file stores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mlc_errors import UnsupportedError

ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"


class Llama3(NamedTuple):
    """The keys of a rope_scaling entry of type llama3."""

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


KNOWN = (
    Llama3(8.0),
    Llama3(16.0),
    Llama3(32.0),
    Llama3(2.0, high_freq_factor=32.0, original_max_position_embeddings=131072),
)
"""Known settings: Llama 3.1 and 3.2, and Step 3.5."""


def longrope_scaling(long: np.ndarray, short: np.ndarray, original_context: int) -> dict[str, Any]:
    """The rope_scaling entry of LongRoPE with factors float32 [rotary_dim / 2], written as shortest decimals."""
    named = {"long_factor": long, "short_factor": short}
    factors = {name: [float(str(np.float32(v))) for v in values] for name, values in named.items()}
    return {"rope_type": "longrope", **factors, "original_max_position_embeddings": original_context}


def llama3_scaling(factors: np.ndarray, theta: float, where: str) -> dict[str, Any]:
    """The rope_scaling entry with factors float32 [head_dim / 2]. Raises UnsupportedError for unknown factors."""
    for known in KNOWN:
        if np.allclose(_llama3_factors(len(factors), theta, known), factors, rtol=1e-4, atol=0):
            return {"rope_type": "llama3", **known._asdict()}
    tried = [known.factor for known in KNOWN]
    raise UnsupportedError(
        f"{ROPE_FACTORS} does not belong to a known rotary scaling (tried llama3 with factors {tried})",
        where=[where],
        hint="convert from the original Hugging Face checkpoint, whose config.json names the scaling",
    )


def _llama3_factors(half: int, theta: float, scaling: Llama3) -> np.ndarray:
    """The divisor of each frequency: 1 for short wavelengths, ``factor`` for long ones, smooth between (Llama 3.1)."""
    wavelength = 2 * np.pi * theta ** (np.arange(half) / half)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((scaling.original_max_position_embeddings / wavelength - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / scaling.factor + smooth)
