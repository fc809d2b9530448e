"""An architecture's entry in the registry: model, weight map, states and exported functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mlc_compiler.nn import Module, spec
from mlc_compiler.nn.states import State
from model_zoo import decoder, encoder, vision
from model_zoo.vision import ImageInput
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions


class ModelConfig(Protocol):
    """Attributes of every configuration; only the architecture's own functions read others."""

    @property
    def model_type(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_window_size(self) -> int:
        """Maximum length of a sequence, in tokens."""

    @property
    def prefill_chunk_size(self) -> int:
        """Maximum number of tokens in one call."""

    @property
    def max_batch_size(self) -> int:
        """Maximum number of sequences in one call."""


@dataclass(frozen=True)
class Architecture:
    """A kind of model, named by Hugging Face's ``model_type``.

    config: class with ``from_hf`` and ``chat_model_config``. model: builds the module from a config. weights: the
    weight map of a config. tiny: a small config of odd sizes, for tests. quantization: layers that schemes treat
    specially. task: "chat" for a model that continues text, "embedding" for one that returns hidden states. pooling:
    default pooling of hidden states ("mean", "cls", "last"), if the checkpoint has none. variant: config.json with
    this ``model_type`` -> the name of another architecture that it describes, or None.

    images: config -> the image input of the model; None for a text-only model.
    states: (config, dtype of keys and values) -> the states, in the order in which functions take them.
    entry_points: (model, config, states, dtype of activations) -> the exported functions by name. The defaults of both
    are those of a decoder.
    """

    name: str
    config: type[Any]
    model: Callable[[Any], Module]
    weights: Callable[[Any], WeightMap]
    tiny: ModelConfig
    task: str = "chat"
    states: Callable[[Any, str], Sequence[State]] = decoder.states
    entry_points: Callable[[Any, Any, Sequence[State], str], Mapping[str, spec.Function]] = decoder.entry_points
    images: Callable[[Any], ImageInput | None] = lambda config: None
    quantization: Exceptions = field(default_factory=Exceptions)
    pooling: str | None = None
    variant: Callable[[Mapping[str, Any]], str | None] = lambda config: None

    @property
    def is_encoder(self) -> bool:
        """Whether attention is bidirectional, so that a text is computed in one call."""
        return self.entry_points is encoder.entry_points

    @property
    def takes_draft_heads(self) -> bool:
        """Whether the functions that draft heads need can be exported too."""
        return self.entry_points in (decoder.entry_points, vision.entry_points)


def encoder_architecture(
    config: type[Any],
    model: Callable[[Any], Module],
    weights: Callable[[Any], WeightMap],
    tiny: ModelConfig,
    **more: Any,
) -> Architecture:
    """An encoder with the states and functions of ``model_zoo.encoder``."""
    return Architecture(
        config.model_type,
        config,
        model,
        weights,
        tiny,
        "embedding",
        encoder.states,
        encoder.entry_points,
        **more,
    )
