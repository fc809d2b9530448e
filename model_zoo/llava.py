"""LLaVA: Llama or Mistral, and CLIP or SigLIP with a two-layer projector (Liu et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor
from mlc_errors import UnsupportedError
from model_zoo import tiny, vision
from model_zoo.architecture import Architecture
from model_zoo.llama import LlamaForCausalLM
from model_zoo.mistral import MistralConfig
from model_zoo.transformer import activation_of
from model_zoo.vision import CLIP, ImageFields, ImageInput, VisionLanguageModel
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import llama_names

TEXT_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"vocab_size": 32000, "intermediate_size": 11008, "max_position_embeddings": 2048, "sliding_window": None},
    "mistral": {
        "vocab_size": 32000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
}
"""model_type of text_config -> Hugging Face's defaults for keys that it leaves out."""


@dataclass(frozen=True, kw_only=True)
class LlavaConfig(ImageFields, MistralConfig):
    """vision_feature_layer: the layer whose results are projected; 0: input of the first layer, -1: last layer.

    vision_feature_select_strategy: "default" drops the class token, "full" keeps all tokens.
    """

    model_type: ClassVar[str] = "llava"
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"image_token_id": ("image_token_index",)}
    ignored: ClassVar[frozenset[str]] = frozenset({"ignore_index", "image_seq_length", "image_grid_pinpoints"})

    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    image_token_id: int = 32000
    projector_hidden_act: str = "gelu"
    multimodal_projector_bias: bool = True
    vision_feature_layer: int | Sequence[int] = -2
    vision_feature_select_strategy: str = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vision_feature_select_strategy not in ("default", "full"):
            got = self.vision_feature_select_strategy
            raise UnsupportedError(f"vision_feature_select_strategy: got {got[:80]!r}; expected default or full")
        layer, layers = self.vision_feature_layer, self.tower.num_hidden_layers
        if not isinstance(layer, int) or not -layers - 1 <= layer <= layers:
            raise UnsupportedError(f"vision_feature_layer: got {layer!r}; expected one of {-layers - 1} to {layers}")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        text = raw.get("text_config")
        if not isinstance(text, Mapping):
            return super().from_hf(raw)
        kind = text.get("model_type", "llama")
        if kind not in TEXT_DEFAULTS:
            raise UnsupportedError(
                f"text_config: got model_type {str(kind)[:80]!r}; llava models have {' or '.join(TEXT_DEFAULTS)}",
                where=["config.json"],
            )
        return super().from_hf({**raw, "text_config": {**TEXT_DEFAULTS[kind], **text}})

    @property
    def tower_layers(self) -> int:
        """Layers of the tower that are computed."""
        layer = self.vision_feature_layer
        assert isinstance(layer, int)
        return layer if layer >= 0 else self.tower.num_hidden_layers + 1 + layer

    @property
    def drops_first(self) -> bool:
        return self.vision_feature_select_strategy == "default"

    @property
    def images(self) -> ImageInput:
        c, token = self.tower, self.image_token_id
        tokens = c.side**2 + (c.model_type == CLIP) - self.drops_first
        return ImageInput(c.shape, tokens, token, token, (token,))


class Projector(nn.Module):
    """Projects patches, [1, S, E] -> [1, T, D]; drops_first: whether to drop the first token."""

    def __init__(self, c: LlavaConfig):
        self.drops_first = c.drops_first
        self.linear_1 = nn.Linear(c.tower.hidden_size, c.hidden_size, c.multimodal_projector_bias)
        self.activation = activation_of(c.projector_hidden_act)
        self.linear_2 = nn.Linear(c.hidden_size, c.hidden_size, c.multimodal_projector_bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.drops_first:
            _, x = nn.op.split(x, [1], axis=1)
        return self.linear_2(self.activation(self.linear_1(x)))


def model(c: LlavaConfig) -> VisionLanguageModel:
    return VisionLanguageModel(LlamaForCausalLM(c), vision.tower(c.tower, c.tower_layers), Projector(c))


def weights(c: LlavaConfig) -> WeightMap:
    return vision.weights(llama_names(c), c.tower, c.tower_layers)


TOWER = {
    "hidden_size": 44,
    "intermediate_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 21,
    "patch_size": 7,
}
TINY = LlavaConfig(**tiny.SIZES, sliding_window=None, vision_config=TOWER, image_token_id=7)
ARCHITECTURE = Architecture(
    "llava",
    LlavaConfig,
    model,
    weights,
    tiny=TINY,
    entry_points=vision.entry_points,
    images=lambda c: c.images,
    quantization=vision.QUANTIZATION,
)
