"""The settings in a model folder's mlc-chat-config.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlc_errors import MLCError, UsageError
from mlc_runtime.embedding import EmbeddingSettings
from mlc_runtime.penalties import Penalties

CONFIG_NAME = "mlc-chat-config.json"
Settings = TypeVar("Settings")


@dataclass(frozen=True)
class GenerationDefaults:
    """What answers are generated with unless the caller says otherwise. stop and eos_ids: see ``Sampling``.

    image_processor: how images are resized and normalized; None where the model takes none.
    """

    temperature: float
    top_p: float
    penalties: Penalties
    eos_ids: frozenset[int]
    stop: tuple[str, ...]
    conv_template: dict[str, Any]
    image_processor: dict[str, Any] | None = None


def generation_defaults(folder: Path) -> GenerationDefaults:
    """The generation settings. Raises MLCError for a missing or malformed file, naming the setting."""
    return _read(folder / CONFIG_NAME, _defaults)


def embedding_settings(folder: Path) -> EmbeddingSettings:
    """How texts become vectors. Raises MLCError when the file is missing or malformed."""
    return _read(folder / CONFIG_NAME, lambda c: EmbeddingSettings.from_metadata(c.get("embedding_metadata") or {}))


def _read(path: Path, parse: Callable[[dict[str, Any]], Settings]) -> Settings:
    try:
        return parse(json.loads(path.read_bytes()))
    except OSError as e:
        raise MLCError(f"cannot read {path}: {e.strerror}", hint="gen_config writes it") from None
    except UsageError as e:
        raise MLCError(f"{CONFIG_NAME}: {e.message}", where=[str(path)], hint="run gen_config again") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise MLCError(f"{CONFIG_NAME} is malformed: {e}", where=[str(path)], hint="run gen_config again") from None


def _defaults(config: Mapping[str, Any]) -> GenerationDefaults:
    conversation = config.get("conv_template") or {}
    eos = config.get("eos_token_id", [])
    return GenerationDefaults(
        temperature=_number(config, "temperature", 1.0),
        top_p=_number(config, "top_p", 1.0),
        penalties=Penalties(
            _number(config, "presence_penalty", 0.0),
            _number(config, "frequency_penalty", 0.0),
            _number(config, "repetition_penalty", 1.0),
        ),
        eos_ids=frozenset([*([eos] if isinstance(eos, int) else eos), *conversation.get("stop_token_ids", [])]),
        stop=tuple(conversation.get("stop_str", [])),
        conv_template=conversation,
        image_processor=config.get("image_processor"),
    )


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{key} is {value!r}; expected a number")
    return float(value)
