"""Learned biases of scores by the distance of positions (Raffel et al. 2020, section 2.1)."""

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
    """What is added to scores; weight [buckets, heads]. backward: distances are not positive; see ``buckets``."""

    def __init__(self, heads: int, count: int, farthest: int, backward: bool = False):
        self.weight = Parameter((count, heads))
        self.buckets = buckets(count, farthest, backward)

    def forward(self) -> Tensor:
        """float32 [heads, 2 R + 1]"""
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

    Of those for one direction, half are for a distance each, and half for ranges that grow exponentially.
    """
    distance = np.arange(-farthest, farthest + 1)
    half = count if backward else count // 2
    magnitude = np.maximum(-distance, 0) if backward else np.abs(distance)
    exact = half // 2
    ratio = np.log(np.maximum(magnitude, 1).astype(np.float32) / exact) / np.float32(math.log(farthest / exact))
    large = np.minimum(exact + (ratio * (half - exact)).astype(np.int64), half - 1)
    bucket = np.where(magnitude < exact, magnitude, large)
    return (bucket + (0 if backward else half * (distance > 0))).astype(np.int32)
