"""Gemma 3: Gemma 2 with QK norms, and separate RoPE parameters in layers with a sliding window.

``gemma3`` also takes images: SigLIP with average-pooled patches; tokens of an image attend to all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op
from mlc_errors import MLCError
from model_zoo import gemma2, tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.layer_types import LocalRopeConfig
from model_zoo.transformer import CausalLM
from model_zoo.vision import ImageFields, ImageInput, VisionConfig, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names, one_plus


@dataclass(frozen=True, kw_only=True)
class Gemma3TextConfig(LocalRopeConfig):
    """sliding_window_pattern: period of full-attention layers."""

    model_type: ClassVar[str] = "gemma3_text"
    vocab_size: int = 262208
    hidden_size: int = 2304
    intermediate_size: int = 9216
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    hidden_activation: str = "gelu_pytorch_tanh"
    query_pre_attn_scalar: float = 256
    sliding_window: int | None = 4096  # type: ignore[misc]  # a class constant of DecoderConfig
    sliding_window_pattern: int = 6
    attn_logit_softcapping: ClassVar[None] = None
    final_logit_softcapping: float | None = None
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    context_window_size: int = 131072

    @property
    def pattern(self) -> int | None:
        return self.sliding_window_pattern


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(ImageFields, Gemma3TextConfig):
    """mm_tokens_per_image: a square number. boi_token_id, eoi_token_id: tokens before and after those of an image."""

    model_type: ClassVar[str] = "gemma3"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {
        name: (name.replace("_id", "_index"),) for name in ("image_token_id", "boi_token_id", "eoi_token_id")
    }
    mm_tokens_per_image: int = 256
    image_token_id: int = 262144
    boi_token_id: int = 255999
    eoi_token_id: int = 256000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vision is None:
            return
        tokens, side, window = self.mm_tokens_per_image, math.isqrt(self.mm_tokens_per_image), self.sliding_window
        if side**2 != tokens or self.vision.side % side:
            expected = f"the square of a divisor of {self.vision.side}"
            raise MLCError(f"mm_tokens_per_image: got {tokens}; expected {expected}", where=["config.json"])
        room = min(self.prefill_chunk_size, window or tokens)
        if tokens > room:
            raise MLCError(
                f"mm_tokens_per_image: got {tokens}; expected at most {room}, the smaller of prefill_chunk_size and "
                "sliding_window"
            )

    @property
    def images(self) -> ImageInput | None:
        c, token = self.vision, self.image_token_id
        if c is None:
            return None
        around = ("\n\n", self.boi_token_id, token, self.eoi_token_id, "\n\n")
        return ImageInput(c.shape, self.mm_tokens_per_image, token, self.boi_token_id, around, sees_itself=True)


class Projector(nn.Module):
    """Averages squares of patches and projects them, [1, S, E] -> [1, T, D].

    The decoder multiplies all embeddings by ``sqrt(D)``; those of images are divided by it here.
    """

    def __init__(self, c: Gemma3Config, tower: VisionConfig):
        self.rows, self.size, self.divisor = tower.side, math.isqrt(c.mm_tokens_per_image), math.sqrt(c.hidden_size)
        self.mm_soft_emb_norm = nn.RMSNorm(tower.hidden_size, tower.layer_norm_eps)
        self.mm_input_projection = nn.Linear(tower.hidden_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pool, elements = self.rows // self.size, x.shape[2]
        windows = op.reshape(x, (1, self.size, pool, self.size, pool, elements))
        means = op.reshape(op.mean(windows, axis=(2, 4)), (1, self.size**2, elements))
        return self.mm_input_projection(self.mm_soft_emb_norm(means)) / self.divisor


def head_norms(c: Gemma3TextConfig) -> dict[str, Callable[[], nn.Module]]:
    """Name -> function that makes the norm of queries or keys."""
    return dict.fromkeys(("q_norm", "k_norm"), lambda: nn.RMSNorm(c.head_dim, c.rms_norm_eps))


def model(c: Gemma3TextConfig) -> CausalLM:
    return gemma2.model(c, **head_norms(c))


def weights(c: Gemma3TextConfig) -> WeightMap:
    m = llama_names(c)
    one_plus(m, c, (*gemma2.NORMS, "self_attn.q_norm", "self_attn.k_norm"))
    return m


def model_with_images(c: Gemma3Config) -> VisionLanguageModel:
    if c.vision is None:
        return VisionLanguageModel(model(c), None, None)
    return VisionLanguageModel(model(c), vision.tower(c.vision, post_norm=True), Projector(c, c.vision))


def weights_with_images(c: Gemma3Config) -> WeightMap:
    m = vision.weights(weights(c), c.vision)
    if c.vision is not None:
        m.offset(f"{vision.PROJECTOR}.mm_soft_emb_norm.weight", 1.0)
        projection = f"{vision.PROJECTOR}.mm_input_projection"
        m.transpose(f"{projection}.weight", f"{projection}_weight")
    return m


SIZES = {**tiny.SIZES, "sliding_window": 21, "sliding_window_pattern": 2}


def _variant(config: Mapping[str, Any]) -> str | None:
    return "embeddinggemma" if config.get("use_bidirectional_attention") is True else None


TEXT = Architecture("gemma3_text", Gemma3TextConfig, model, weights, tiny=Gemma3TextConfig(**SIZES), variant=_variant)
TOWER = {
    "model_type": vision.SIGLIP,
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 7,
}
ARCHITECTURE = Architecture(
    "gemma3",
    Gemma3Config,
    model_with_images,
    weights_with_images,
    tiny=Gemma3Config(**SIZES, vision_config=TOWER, mm_tokens_per_image=4, image_token_id=7),
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
