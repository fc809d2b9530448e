"""A decoder with three KV caches: one for all positions, one for a window and the first positions (sinks), a latent
one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_compiler.nn.kv_cache import KVCacheConfig, PagedKVCache
from mlc_compiler.nn.states import State
from model_zoo.architecture import Architecture
from model_zoo.weight_map import WeightMap
from tests.e2e.toy_models import HIDDEN, ToyConfig

HEADS, DIM, WINDOW, SINKS, LATENT = 3, 8, 20, 3, 24


def states(config: ToyConfig, dtype: str) -> Sequence[State]:
    return (
        KVCacheConfig(1, HEADS, 1, DIM, dtype),
        KVCacheConfig(1, HEADS, 1, DIM, dtype, prefix="local_", sliding_window=WINDOW, attention_sink_size=SINKS),
        KVCacheConfig(1, HEADS, 1, LATENT, dtype, prefix="latent_", latent=True, v_head_dim=DIM),
    )


class Layers(nn.Module):
    """One residual attention layer per cache."""

    def __init__(self, c: ToyConfig):
        self.embed_tokens = nn.Embedding(c.vocab_size, HIDDEN)
        self.full = nn.Linear(HIDDEN, (HEADS + 2) * DIM, bias=False)
        self.local = nn.Linear(HIDDEN, (HEADS + 2) * DIM, bias=False)
        self.latent_q = nn.Linear(HIDDEN, HEADS * LATENT, bias=False)
        self.latent = nn.Linear(HIDDEN, LATENT, bias=False)

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.embed_tokens(input_ids)

    def forward(self, x: Tensor, full: PagedKVCache, local: PagedKVCache, latent: PagedKVCache) -> Tensor:
        b, s, _ = x.shape
        for linear, cache in ((self.full, full), (self.local, local)):
            qkv = op.reshape(linear(x), (b * s, HEADS + 2, DIM))
            x = x + op.reshape(cache.attention_with_fused_qkv(0, qkv, HEADS), (b, s, HIDDEN))
        q = op.reshape(self.latent_q(x), (b * s, HEADS, LATENT))
        kept = op.reshape(self.latent(x), (b * s, LATENT))
        return x + op.reshape(latent.latent_attention(0, q, kept, LATENT**-0.5), (b, s, HIDDEN))

    def logits(self, hidden: Tensor) -> Tensor:
        return self.embed_tokens.lm_head_forward(hidden)


@dataclass(frozen=True)
class CachesConfig(ToyConfig):
    context_window_size: int = 500
    prefill_chunk_size: int = 64


ARCHITECTURE = Architecture("toy", CachesConfig, Layers, lambda c: WeightMap(), tiny=CachesConfig(), states=states)


def logits(weights: Mapping[str, np.ndarray], ids: Sequence[int]) -> np.ndarray:
    """The logits of ``Layers`` in float64, [len(ids), VOCAB]."""
    table = weights["embed_tokens.weight"].astype(np.float64)
    x, i = table[list(ids)], np.arange(len(ids))
    causal = i[None] <= i[:, None]
    near = (i[None] > i[:, None] - WINDOW) | (i[None] < SINKS)
    for name, seen in (("full", causal), ("local", causal & near)):
        qkv = (x @ weights[f"{name}.weight"].T).reshape(len(ids), HEADS + 2, DIM)
        x = x + _attend(qkv[:, :HEADS], qkv[:, HEADS], qkv[:, HEADS + 1], seen)
    q = (x @ weights["latent_q.weight"].T).reshape(len(ids), HEADS, LATENT)
    kept = x @ weights["latent.weight"].T
    x = x + _attend(q, kept, kept[:, :DIM], causal)
    return x @ table.T


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Attention. q: [n, H, D]; k: [n, D]; v: [n, E]; seen: bool [n, n]. Returns [n, H x E]."""
    scores = np.einsum("nhd,md->hnm", q, k) / np.sqrt(q.shape[2])
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hnm,me->nhe", weights, v).reshape(len(q), -1)
