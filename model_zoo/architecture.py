"""What the registry holds of an architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model_zoo.config import DecoderConfig
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions


@dataclass(frozen=True)
class Architecture:
    """A kind of model, named by Hugging Face's ``model_type``.

    config: class with ``from_hf``. model: builds the module from a config. weights: the weight map of a config.
    tiny: a small config of awkward sizes, for tests. quantization: layers that schemes treat specially.
    """

    name: str
    config: type[DecoderConfig]
    model: Callable[[Any], Any]
    weights: Callable[[Any], WeightMap]
    tiny: DecoderConfig
    quantization: Exceptions = field(default_factory=Exceptions)

    def chat_model_config(self, config: DecoderConfig) -> Mapping[str, Any]:
        """The model_config of mlc-chat-config.json."""
        return config.chat_model_config()
