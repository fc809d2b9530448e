"""Learned relative position biases of attention scores (T5; Raffel et al. 2020, section 2.1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Parameter, Tensor, op
from mlc_compiler.nn.kv_cache import PagedKVCache
from mlc_compiler.relax.nodes import constant
from model_zoo.transformer import Encoder


class DistanceBiases(nn.Module):
    """Biases that are added to scores. weight: [buckets, heads]. backward: all distances are <= 0; see ``buckets``."""

    def __init__(self, heads: int, count: int, farthest: int, backward: bool = False):
        self.weight = Parameter((count, heads))
        self.buckets = buckets(count, farthest, backward)

    def forward(self) -> Tensor:
        """float32 [heads, 2 R + 1], for distances from -R to R = ``farthest``."""
        chosen = op.take(self.weight.astype("float32"), Tensor(constant(self.buckets)), axis=0)
        return op.permute_dims(chosen, (1, 0))


class BiasedEncoder(Encoder):
    """An encoder whose layers add the same ``biases`` to their scores."""

    def __init__(self, biases: DistanceBiases, *parts: Any, **options: Any):
        super().__init__(*parts, **options)
        self.biases = biases

    def forward(self, x_1SD: Tensor, *caches: PagedKVCache) -> Tensor:
        (cache,) = caches
        cache.biases = self.biases()
        return super().forward(x_1SD, cache)


def buckets(count: int, farthest: int, backward: bool) -> np.ndarray:
    """The bucket of each distance, key position - query position, from -farthest to farthest; int32.

    For each direction, half of the buckets have one distance each, the others have exponentially growing ranges.
    backward: only distances <= 0 occur, which get all ``count`` buckets; else each direction gets half of them.
    """
    distance = np.arange(-farthest, farthest + 1)
    half = count if backward else count // 2
    magnitude = np.maximum(-distance, 0) if backward else np.abs(distance)
    exact = half // 2
    ratio = np.log(np.maximum(magnitude, 1).astype(np.float32) / exact) / np.float32(math.log(farthest / exact))
    large = np.minimum(exact + (ratio * (half - exact)).astype(np.int64), half - 1)
    bucket = np.where(magnitude < exact, magnitude, large)
    return (bucket + (0 if backward else half * (distance > 0))).astype(np.int32)
