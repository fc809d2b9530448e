"""Fit the codebooks of schemes with scales of one byte: ``python benchmarks/fit_codebooks.py [NAME …]``.

Lloyd's algorithm (Lloyd 1982, "Least Squares Quantization in PCM") on groups of random weights: every group gets the
scale, of those that one byte holds, and the codes with the least squared error; then every level becomes the mean of
the weights, divided by their scales, that have its code. Half of the groups are normally distributed, half have the
longer tails of a t distribution; the relative errors of both count alike.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from mlc_compiler.tir.byte_scales import from_bytes
from quantization.schemes import SCHEMES

FREEDOM = (12, 1000)  # degrees of freedom; with the last one, weights are normally distributed
GROUPS = 8000  # of each distribution
DEVIATION = 0.03
TRIED = (0.6, 1.35)  # scales of a group relative to the one with which its largest weight has the largest level
END = 127
SCALES = from_bytes(np.arange(1, 128, dtype=np.int8)).astype(np.float32)


@dataclass(frozen=True)
class Fitted:
    """Groups with their scales float32 [n], which may be negative, codes [n, group], and relative squared error."""

    groups: np.ndarray
    scales: np.ndarray
    codes: np.ndarray
    error: float


def fitted(groups: np.ndarray, levels: np.ndarray) -> Fitted:
    """Choose the scales and codes with the least squared error. groups: float32 [n, group]; levels ascending."""
    middles = (levels[1:] + levels[:-1]) / 2
    largest = np.abs(groups).max(1) / END
    low, high = (np.searchsorted(SCALES, largest * share) for share in TRIED)
    best, scales = np.full(len(groups), np.inf, np.float32), np.zeros(len(groups), np.float32)
    for place in range(int((high - low).max()) + 1):
        magnitude = SCALES[np.minimum(low + place, len(SCALES) - 1)]
        for scale in (magnitude, -magnitude):
            values = levels[np.searchsorted(middles, groups / scale[:, None])] * scale[:, None]
            error = np.square(values - groups).sum(1)
            better = error < best
            best[better], scales[better] = error[better], scale[better]
    codes = np.searchsorted(middles, groups / scales[:, None])
    return Fitted(groups, scales, codes, float(best.sum() / np.square(groups).sum()))


def lloyd(samples: list[np.ndarray], bits: int, rounds: int) -> np.ndarray:
    """Levels float32 [1 << bits], ascending, whose largest magnitude is END."""
    count = 1 << bits
    start = np.sinh(1.8 * (np.arange(count) + 1 - count / 2) / (count / 2))
    levels = (start / start[-1] * END).astype(np.float32)
    for _ in range(rounds):
        total, weight = np.zeros(count), np.zeros(count)
        for made in (fitted(groups, levels) for groups in samples):
            of_group = made.scales**2 / made.error
            total += np.bincount(
                made.codes.ravel(), (of_group[:, None] * made.groups / made.scales[:, None]).ravel(), count
            )
            weight += np.bincount(made.codes.ravel(), of_group.repeat(made.groups.shape[1]), count)
        means = np.where(weight > 0, total / np.maximum(weight, 1e-30), levels)
        levels = (means * END / np.abs(means).max()).astype(np.float32)
    return levels


def main(name: str, rounds: int = 20) -> None:
    scheme, rng = SCHEMES[name], np.random.default_rng(0)
    size = (GROUPS, scheme.group)
    samples = [(rng.standard_t(freedom, size) * DEVIATION).astype(np.float32) for freedom in FREEDOM]
    levels = np.rint(lloyd(samples, scheme.bits, rounds))
    errors = ", ".join(f"{fitted(groups, levels).error ** 0.5:.4f}" for groups in samples)
    print(f"{name}: {tuple(map(int, levels))}; relative errors {errors}", flush=True)


if __name__ == "__main__":
    for argument in sys.argv[1:] or [name for name, scheme in SCHEMES.items() if scheme.byte_scales]:
        main(argument)
