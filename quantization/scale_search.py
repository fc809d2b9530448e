"""Search for scales that minimize the squared error of a group, in the storage format of group quantization.

Plain group quantization uses 15 levels, -7 to 7 times the scale, symmetric around 0. Here all codes are used, -7 to 8
or the values of a codebook, and the scale has the sign that suits the largest weight. Several scales are tried, and
each is replaced by the least-squares optimum for its levels. Size and dequantization do not change. On normally
distributed weights the error decreases from 9.7 % to 8.1 %, equivalent to about a quarter of a bit per weight; with
the codebook of llama.cpp's IQ4_NL to 7.3 %.

For levels q, a scale s and importances u, the squared error is sum u w^2 - s (2 sum u w q - s sum u q^2). An importance
is the mean square of an input, to which the squared error of the layer's output is proportional (as in llama.cpp's
imatrix); without calibration all are 1. Weights are float16, levels are small integers and importances have four
significant bits, so that products are exact in float32. Sums have a fixed order. The compiled kernel and this code
are therefore bit-identical.
"""

from __future__ import annotations

import numpy as np

from mlc_compiler.tir import byte_scales
from quantization.schemes import Scheme

LARGEST_LEVELS = np.array([7.2, 7.6, 8.0, 8.5, 9.0], np.float32)  # candidate levels of the largest weight, for 4 bits
CALIBRATED_LEVELS = np.arange(6.2, 10.0, 0.4, dtype=np.float32)  # more candidates, for weighted errors
BOOK_SHARES = np.arange(0.70, 1.21, 0.05, dtype=np.float32)  # candidate levels as shares of a codebook's end values


def search_inputs(scheme: Scheme, importance: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Candidate levels of a group's largest weight, float32 [n], and importances, float32 [m, group] (1 for None)."""
    weights = np.ones((1, scheme.group), np.float32) if importance is None else _four_bits(importance)
    return _tried_levels(scheme, importance is not None), weights


def _tried_levels(scheme: Scheme, calibrated: bool) -> np.ndarray:
    if scheme.values:
        low, high = min(scheme.values), max(scheme.values)
        if low == -high:  # also its own levels, so that weights on its grid keep their codes
            return np.concatenate([BOOK_SHARES * np.float32(high), _positive(scheme)])
        return np.concatenate([BOOK_SHARES * np.float32(end) for end in (low, high)])
    tried = CALIBRATED_LEVELS if calibrated else LARGEST_LEVELS
    return tried * np.float32((1 << scheme.bits) / 16)


def _positive(scheme: Scheme) -> np.ndarray:
    return np.unique(scheme.levels[scheme.levels > 0]).astype(np.float32)


def _four_bits(importance: np.ndarray) -> np.ndarray:
    """Round to four significant bits, so that products with weights and levels are exact in float32."""
    significand, exponent = np.frexp(importance)
    return np.ldexp(np.rint(significand * 16) / 16, exponent).astype(np.float32)


def middles(scheme: Scheme) -> np.ndarray:
    """The midpoints between adjacent levels, float32, where the nearest level changes."""
    levels = scheme.levels.astype(np.float32)
    return (levels[1:] + levels[:-1]) / np.float32(2)


def search(groups: np.ndarray, scheme: Scheme, importance: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes uint8 [n, group] and scales float16 [n] for groups float32 [n, group]; group is a power of two.

    Weights must be finite and representable in float16. importance: float32 [m, group], at least 0; row i modulo m is
    that of group i. No group's weighted error is larger than with the scale max |w| / zero_point.
    """
    tried, weights = search_inputs(scheme, importance)
    best = _Best(groups, scheme, np.tile(weights, (len(groups) // len(weights), 1)))
    magnitude = np.abs(groups).max(axis=1)
    largest = np.where(groups.max(axis=1) == magnitude, magnitude, -magnitude)
    best.try_divisor(magnitude / np.float32(scheme.plain_level), fit=False)
    for level in tried:
        best.try_divisor(largest / level)
    best.try_divisor(best.scales.astype(np.float32))
    return best.codes(best.divisors), best.scales


class _Best:
    """The best scale of every group so far, and the divisor that produced its levels."""

    def __init__(self, groups: np.ndarray, scheme: Scheme, importance: np.ndarray):
        self.groups, self.importance = groups, importance
        self.weighted = groups * importance
        self.levels, self.middles = scheme.levels.astype(np.float32), middles(scheme)
        self.rounds = scheme.byte_scales
        self.gains = np.full(len(groups), -np.inf, np.float32)
        self.scales = np.zeros(len(groups), np.float16)
        self.divisors = np.zeros(len(groups), np.float32)

    def codes(self, divisors: np.ndarray) -> np.ndarray:
        """Codes uint8 of the levels nearest to w / divisor; 0 / 0 gives the lowest code."""
        with np.errstate(all="ignore"):
            quotients = self.groups / divisors[:, None]
        quotients[np.isnan(quotients)] = -np.inf
        return np.searchsorted(self.middles, quotients).astype(np.uint8)

    def try_divisor(self, divisors: np.ndarray, fit: bool = True) -> None:
        """Take the levels of float16(divisors) where they reduce the error. fit: use their least-squares scales."""
        divisors = divisors.astype(np.float16).astype(np.float32)
        levels = self.levels[self.codes(divisors)]
        products, squares = _sum(self.weighted * levels), _sum(self.importance * (levels * levels))
        with np.errstate(all="ignore"):
            scales = (products / squares).astype(np.float16) if fit else divisors.astype(np.float16)
            scales = byte_scales.rounded(scales) if self.rounds else scales
            wide = scales.astype(np.float32)
            gains = wide * (np.float32(2) * products - wide * squares)
            better = gains > self.gains
        self.gains[better], self.scales[better] = gains[better], scales[better]
        self.divisors[better] = divisors[better]


def _sum(values: np.ndarray) -> np.ndarray:
    """Row sums by pairwise halving, the same order as in the kernel."""
    while (width := values.shape[1]) > 1:
        values = values[:, : width // 2] + values[:, width // 2 :]
    return values[:, 0]
