"""A model's sizes as mlc-chat-config.json records them, with the user's overrides, and the bytes that they imply."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from mlc_errors import UsageError
from mlc_toolchain.conversion_plan import ModelWeights, describe_model
from mlc_toolchain.readers.base import DTYPES
from model_zoo import registry
from quantization.codecs import codec
from quantization.schemes import Scheme

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SizeOverrides:
    """Sizes that replace the model's own, in tokens, sequences and devices; None keeps the model's."""

    context_window_size: int | None = None
    sliding_window_size: int | None = None
    prefill_chunk_size: int | None = None
    attention_sink_size: int | None = None
    tensor_parallel_shards: int | None = None
    pipeline_parallel_stages: int | None = None
    max_batch_size: int | None = 128


@dataclass(frozen=True)
class ModelSizes:
    """A model's sizes. model_config: the architecture's part of mlc-chat-config.json. notes: for the user.

    kv_tokens: tokens of one sequence in the KV cache. state_bytes: recurrent states of one sequence.
    """

    model_type: str
    model_config: Mapping[str, Any]
    vocab_size: int
    weight_bytes: int
    kv_bytes_per_token: int
    notes: tuple[str, ...] = ()
    takes_images: bool = False
    state_bytes: int = 0

    def get(self, key: str, default: int) -> int:
        """A size of model_config; `default` if the architecture lacks it or leaves it undefined."""
        value = self.model_config.get(key)
        return default if value is None else value

    @property
    def kv_tokens(self) -> int:
        window = self.get("sliding_window_size", -1)
        context = self.get("context_window_size", -1)
        return min(window, context) if window > 0 and context > 0 else max(window, context, 0)


def model_sizes(config: Mapping[str, Any], model_type: str, scheme: Scheme, overrides: SizeOverrides) -> ModelSizes:
    """Sizes of the model that a Hugging Face config describes. Raises UsageError for an invalid override."""
    weights = describe_model(config, model_type, scheme)
    architecture = registry.get(weights.model_type)
    model = architecture.config.from_hf(config)
    own = model.chat_model_config()
    sizes, notes = _override(weights.model_type, own, overrides)
    states = architecture.states(model, "float16" if scheme.model_dtype == "float16" else "float32")
    return ModelSizes(
        weights.model_type,
        sizes,
        model.vocab_size,
        _weight_bytes(weights, scheme),
        sum(state.bytes_per_token for state in states),
        notes,
        architecture.images(model) is not None,
        sum(state.bytes_per_sequence for state in states),
    )


def _override(
    model_type: str, own: Mapping[str, Any], overrides: SizeOverrides
) -> tuple[dict[str, Any], tuple[str, ...]]:
    given = {key: value for key, value in asdict(overrides).items() if value is not None}
    for key, value in given.items():
        _check_override(model_type, own, key, value)
    sizes = dict(own) | given
    for key, value in given.items():
        if value != own[key]:
            LOG.info("%s is %r instead of %r", key, value, own[key])
    notes = []
    context, chunk = sizes.get("context_window_size", -1), sizes.get("prefill_chunk_size", -1)
    if 0 < context < chunk and own["prefill_chunk_size"] <= own["context_window_size"]:
        if overrides.prefill_chunk_size is not None:
            raise _refused("prefill_chunk_size", chunk, f"at most the context window of {context} tokens")
        sizes["prefill_chunk_size"] = context
    if context > own.get("context_window_size", context):
        trained = own["context_window_size"]
        notes.append(f"a context of {context} tokens is beyond the {trained} that the model is configured for")
    return sizes, tuple(notes)


def _check_override(model_type: str, own: Mapping[str, Any], key: str, value: int) -> None:
    if key not in own:
        known = [_flag(name) for name in asdict(SizeOverrides()) if name in own]
        raise UsageError(f"{_flag(key)} cannot be set: {model_type} has no {key}; it takes {', '.join(known)}")
    lowest = 0 if key == "attention_sink_size" else 1
    if not lowest <= value < 2**31:
        raise _refused(key, value, f"{lowest} to {2**31 - 1}")
    if key == "tensor_parallel_shards":
        for heads in ("num_attention_heads", "num_key_value_heads"):
            if own.get(heads, value) % value:
                raise _refused(key, value, f"a divisor of {heads}, {own[heads]}")
    if key == "pipeline_parallel_stages" and value > own.get("num_hidden_layers", value):
        raise _refused(key, value, f"at most the {own['num_hidden_layers']} layers")


def _refused(key: str, value: int, expected: str) -> UsageError:
    return UsageError(f"{_flag(key)} is {value}; expected {expected}")


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _weight_bytes(weights: ModelWeights, scheme: Scheme) -> int:
    total = 0
    for name, shape in weights.parameters.items():
        if name not in weights.quantized:
            total += prod(shape) * DTYPES[weights.dtypes[name]].itemsize
            continue
        form = weights.quantized[name]
        tensors = codec(form.scheme).tensors(shape, form.scheme, form.layout).values()
        total += sum(prod(stored) * DTYPES[dtype].itemsize for stored, dtype in tensors)
    return total
