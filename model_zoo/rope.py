"""Rotary embedding (Su et al. 2021): the frequency of every pair, as Hugging Face's configurations define it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_errors import MLCError, UnsupportedError
from model_zoo.config_check import is_finite

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")


@dataclass(frozen=True, eq=False)
class RopeParameters:
    """inv_freq: float32 [R/2], radians per position of pair i. attention_factor: factor of cosines and sines."""

    inv_freq: np.ndarray
    attention_factor: float = 1.0

    @staticmethod
    def from_hf(
        rotary_dim: int, theta: float, scaling: Mapping[str, Any] | None, max_position_embeddings: int
    ) -> RopeParameters:
        """Parse ``rope_theta`` and ``rope_scaling``, whose ``type`` or ``rope_type`` is one of ``KINDS``.

        Two kinds depend on the length of a text, which a compiled model assumes to be ``max_position_embeddings``:
        dynamic scaling begins beyond it, and longrope chooses one of its two lists of factors by it. Raises
        UnsupportedError for another kind, MLCError for a missing number.
        """
        try:
            with np.errstate(all="raise", under="ignore"):
                return _parameters(rotary_dim, theta, dict(scaling or {}), max_position_embeddings)
        except (ArithmeticError, ValueError) as error:
            raise MLCError(f"rope_theta and rope_scaling: impossible values ({error})", where=["config.json"]) from None


def _parameters(
    rotary_dim: int, theta: float, scaling: Mapping[str, Any], max_position_embeddings: int
) -> RopeParameters:
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    kind = "longrope" if kind == "su" else kind  # the name in the first Phi-3 checkpoints
    if kind not in KINDS:
        raise UnsupportedError(
            f"rope_scaling: got type {kind!r}; expected one of {', '.join(KINDS)}", where=["config.json"]
        )
    base = _frequencies(rotary_dim, theta)
    if kind == "linear":
        return RopeParameters(base / np.float32(_number(scaling, "factor")))
    if kind == "proportional":
        return RopeParameters(_proportional(base, _number(scaling, "partial_rotary_factor", 1)))
    if kind == "llama3":
        return RopeParameters(_llama3(base, scaling))
    if kind == "yarn":
        return _yarn(rotary_dim, theta, scaling, max_position_embeddings)
    if kind == "longrope":
        return _longrope(rotary_dim, theta, scaling, max_position_embeddings)
    if kind == "dynamic" and scaling.get("alpha"):
        stretched = theta * _number(scaling, "alpha") ** (rotary_dim / (rotary_dim - 2))
        return RopeParameters(_frequencies(rotary_dim, stretched))
    return RopeParameters(base)


def _number(scaling: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = scaling.get(key, default)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MLCError(f"rope_scaling.{key}: got {value!r}; expected a number", where=["config.json"])
    return float(value)


def _powers(rotary_dim: int, theta: float) -> np.ndarray:
    exponents = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    return np.power(np.float32(theta), exponents)


def _frequencies(rotary_dim: int, theta: float) -> np.ndarray:
    """``theta ** (-2 i / R)``, float32 [R/2] (Su et al. 2021)."""
    return np.float32(1) / _powers(rotary_dim, theta)


def _proportional(base: np.ndarray, part: float) -> np.ndarray:
    """Gemma 4: the frequencies of the first ``part`` of all pairs; the other pairs are not rotated."""
    return np.where(np.arange(len(base)) < int(part * len(base)), base, np.float32(0))


def _llama3(base: np.ndarray, scaling: Mapping[str, Any]) -> np.ndarray:
    """Llama 3.1: low frequencies are divided by ``factor``, high ones kept, those between interpolated.

    Llama 4 Scout has one bound for both.
    """
    factor, context = _number(scaling, "factor"), _number(scaling, "original_max_position_embeddings")
    low, high = _number(scaling, "low_freq_factor"), _number(scaling, "high_freq_factor")
    wavelength = np.float32(2 * math.pi) / base
    turns = np.float32(context) / wavelength - np.float32(low)
    smooth = np.clip(turns / np.float32(high - low), 0, 1) if high != low else (turns >= 0).astype(np.float32)
    return (np.float32(1) - smooth) * base / np.float32(factor) + smooth * base


def _yarn(rotary_dim: int, theta: float, scaling: Mapping[str, Any], max_positions: int) -> RopeParameters:
    """YaRN (Peng et al. 2023): high frequencies are kept, low ones divided by ``factor``, a linear ramp between."""
    original = _number(scaling, "original_max_position_embeddings", max_positions)
    factor = _number(scaling, "factor", max_positions / original)
    bounds = [
        rotary_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (_number(scaling, "beta_fast", 32), _number(scaling, "beta_slow", 1))
    ]
    if scaling.get("truncate", True):
        bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
    low, high = max(bounds[0], 0), min(bounds[1], rotary_dim - 1)
    high += 0.001 if low == high else 0
    ramp = np.clip((np.arange(rotary_dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
    powers = _powers(rotary_dim, theta)
    keep = np.float32(1) - ramp
    stretched, kept = np.float32(1) / (np.float32(factor) * powers), np.float32(1) / powers
    return RopeParameters(stretched * (np.float32(1) - keep) + kept * keep, _yarn_attention_factor(scaling, factor))


def _yarn_attention_factor(scaling: Mapping[str, Any], factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if scaling.get("attention_factor") is not None:
        return _number(scaling, "attention_factor")
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(_number(scaling, "mscale")) / magnitude(_number(scaling, "mscale_all_dim"))
    return magnitude(1.0)


def _longrope(rotary_dim: int, theta: float, scaling: Mapping[str, Any], max_positions: int) -> RopeParameters:
    """LongRoPE (Ding et al. 2024): each frequency is divided by its own factor."""
    original = _number(scaling, "original_max_position_embeddings")
    name = "long_factor" if max_positions > original else "short_factor"
    factors = scaling.get(name)
    if not isinstance(factors, list) or len(factors) != rotary_dim // 2 or not all(map(is_finite, factors)):
        raise MLCError(f"rope_scaling.{name}: expected a list of {rotary_dim // 2} numbers", where=["config.json"])
    stretch = _number(scaling, "factor", max_positions / original)
    factor = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(original))
    factor = _number(scaling, name.replace("factor", "mscale"), factor)  # given by Phi-3.5-MoE
    frequencies = np.float32(1) / (np.array(factors, np.float32) * _powers(rotary_dim, theta))
    return RopeParameters(frequencies, _number(scaling, "attention_factor", factor))
