"""The configuration of a checkpoint's model, read without the compiler: an unsupported one is refused in a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_errors import MLCError, UsageError
from mlc_toolchain.packed_settings import unquantized
from mlc_toolchain.readers.base import shown
from mlc_toolchain.sentence_transformers import sentence_modules, with_heads
from mlc_toolchain.source import ModelSource, resolve_source
from model_zoo import registry
from model_zoo.architecture import Architecture


def checkpoint_source(text: str) -> ModelSource:
    """The checkpoint that ``text`` names. Raises UsageError if it is not one, or has no weights."""
    source = resolve_source(text)
    if source.kind == "preset":
        raise UsageError(
            f"the preset {text} is a configuration without weights",
            hint="name its checkpoint: a folder, a .gguf file or HF://owner/name",
        )
    return source


def checkpoint_config(source: ModelSource) -> dict[str, Any]:
    """Its config.json, with the heads of sentence-transformers' files, without the settings of a quantization."""
    return unquantized(with_heads(source.config(), sentence_modules(source)), str(source.path))


def architecture_of(config: Mapping[str, Any], model_type: str) -> Architecture:
    """The architecture of a Hugging Face config. model_type: see ``registry.resolve``."""
    own = _model_type(config) if model_type in (registry.AUTO, registry.MTP) else ""
    return registry.get(registry.resolve(model_type, own))


def check_checkpoint(text: str, model_type: str) -> None:
    """Raise MLCError unless ``text`` names a checkpoint with the configuration of a supported model."""
    config = checkpoint_config(checkpoint_source(text))
    architecture_of(config, model_type).config.from_hf(config)


def _model_type(config: Mapping[str, Any]) -> str:
    nested = config.get("model_config")
    found = registry.name_of(config) or (nested.get("model_type") if isinstance(nested, dict) else None)
    if not isinstance(found, str):
        raise MLCError(
            f"config.json has the model_type {shown(found)}; expected a name", hint="say it with --model-type NAME"
        )
    return found
