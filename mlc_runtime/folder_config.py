"""The settings in a model folder's mlc-chat-config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlc_errors import MLCError
from mlc_runtime.embedding import EmbeddingSettings

CONFIG_NAME = "mlc-chat-config.json"
Settings = TypeVar("Settings")


@dataclass(frozen=True)
class GenerationDefaults:
    """The generation settings of mlc-chat-config.json."""

    temperature: float
    top_p: float
    eos_ids: frozenset[int]
    stop: tuple[str, ...]
    conv_template: dict
    image_processor: dict | None = None


def generation_defaults(folder: Path) -> GenerationDefaults:
    """The generation settings. Raises MLCError when the file is missing or malformed."""
    return _read(folder / CONFIG_NAME, _defaults)


def embedding_settings(folder: Path) -> EmbeddingSettings:
    """How texts become vectors. Raises MLCError when the file is missing or malformed."""
    return _read(folder / CONFIG_NAME, lambda c: EmbeddingSettings.from_metadata(c.get("embedding_metadata") or {}))


def _defaults(config: dict[str, Any]) -> GenerationDefaults:
    conversation = config.get("conv_template") or {}
    eos = config.get("eos_token_id", [])
    return GenerationDefaults(
        temperature=float(config.get("temperature", 1.0)),
        top_p=float(config.get("top_p", 1.0)),
        eos_ids=frozenset([*([eos] if isinstance(eos, int) else eos), *conversation.get("stop_token_ids", [])]),
        stop=tuple(conversation.get("stop_str", [])),
        conv_template=conversation,
        image_processor=config.get("image_processor"),
    )


def _read(path: Path, parse: Callable[[dict[str, Any]], Settings]) -> Settings:
    try:
        return parse(json.loads(path.read_bytes()))
    except OSError as e:
        raise MLCError(f"cannot read {path}: {e.strerror}", hint="gen_config writes it") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise MLCError(f"{CONFIG_NAME} is malformed: {e}", where=[str(path)], hint="run gen_config again") from None
