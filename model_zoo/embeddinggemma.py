"""EmbeddingGemma: Gemma 3 as an encoder, with bidirectional sliding windows, and dense layers after pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from mlc_errors import UnsupportedError
from model_zoo import gemma2, gemma3
from model_zoo.architecture import encoder_architecture
from model_zoo.config import AttentionKind
from model_zoo.encoder import EncoderConfig
from model_zoo.gemma3 import Gemma3TextConfig
from model_zoo.transformer import Encoder, rms_norm
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class EmbeddingGemmaConfig(Gemma3TextConfig, EncoderConfig):
    """sliding_window: positions in a window, half of them on each side of a token."""

    model_type: ClassVar[str] = "embeddinggemma"
    use_bidirectional_attention: bool = True
    context_window_size: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.use_bidirectional_attention:
            raise UnsupportedError("use_bidirectional_attention: got false; expected true", where=["config.json"])

    def _kind(self, layer: int) -> AttentionKind:
        kind = super()._kind(layer)
        return kind if kind.window is None else replace(kind, window=kind.window // 2 + 1)


def model(c: EmbeddingGemmaConfig) -> Encoder:
    return Encoder(
        c,
        gemma2.layers(c, **gemma3.head_norms(c)),
        rms_norm(c.rms_norm_eps)(c.hidden_size),
        embedding_multiplier=math.sqrt(c.hidden_size),
    )


def weights(c: EmbeddingGemmaConfig) -> WeightMap:
    m = gemma3.weights(c)
    m.optional_prefix("model.")
    return m


TINY = EmbeddingGemmaConfig(**gemma3.SIZES, dense_sizes=(72, 52))
ARCHITECTURE = encoder_architecture(EmbeddingGemmaConfig, model, weights, TINY, pooling="mean")
