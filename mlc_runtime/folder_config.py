"""The settings in a model folder's mlc-chat-config.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlc_errors import MLCError, UsageError
from mlc_files import read_limited
from mlc_runtime.embedding_settings import EmbeddingSettings
from mlc_runtime.penalties import Penalties
from mlc_runtime.sampling import Filters

CONFIG_NAME = "mlc-chat-config.json"
LIMIT_BYTES = 16 << 20
DEFAULT_TEMPERATURE, DEFAULT_TOP_P = 0.7, 0.95
"""Used if the file has temperature 1 and no filter, which gen_config writes for checkpoints without such settings."""
Settings = TypeVar("Settings")


@dataclass(frozen=True)
class GenerationDefaults:
    """The folder's default generation settings. stop and eos_ids: see ``Sampling``.

    image_processor: how images are resized and normalized; None if the model takes none.
    """

    temperature: float
    filters: Filters
    penalties: Penalties
    eos_ids: frozenset[int]
    stop: tuple[str, ...]
    conv_template: dict[str, Any]
    image_processor: dict[str, Any] | None = None


def generation_defaults(folder: Path) -> GenerationDefaults:
    """The generation settings. Raises MLCError for a missing or malformed file, naming the setting."""
    return _read(folder / CONFIG_NAME, _defaults)


def embedding_settings(folder: Path) -> EmbeddingSettings:
    """The settings for text embeddings. Raises MLCError when the file is missing or malformed."""
    return _read(folder / CONFIG_NAME, lambda c: EmbeddingSettings.from_metadata(c.get("embedding_metadata") or {}))


def read_config(path: Path) -> dict[str, Any]:
    """Read a mlc-chat-config.json. Raises MLCError if it holds no JSON object, OSError for an unreadable file."""
    try:
        config = json.loads(read_limited(path, LIMIT_BYTES))
    except (ValueError, RecursionError) as e:
        raise MLCError(f"{path.name} is malformed: {e}", where=[str(path)], hint="run gen_config again") from None
    if not isinstance(config, dict):
        got = f"{path.name}: got a JSON {type(config).__name__}; expected an object"
        raise MLCError(got, where=[str(path)], hint="run gen_config again")
    return config


def _read(path: Path, parse: Callable[[dict[str, Any]], Settings]) -> Settings:
    try:
        return parse(read_config(path))
    except OSError as e:
        raise MLCError(f"cannot read {path}: {e.strerror}", hint="gen_config writes it") from None
    except UsageError as e:
        raise MLCError(f"{CONFIG_NAME}: {e.message}", where=[str(path)], hint="run gen_config again") from None
    except (ValueError, TypeError, AttributeError) as e:
        raise MLCError(f"{CONFIG_NAME} is malformed: {e}", where=[str(path)], hint="run gen_config again") from None


def _defaults(config: Mapping[str, Any]) -> GenerationDefaults:
    conversation = config.get("conv_template") or {}
    if not isinstance(conversation, dict):
        raise UsageError(f"conv_template is {conversation!r}; expected an object")
    eos = config.get("eos_token_id", [])
    if not (type(eos) is int or _is_list_of(int, eos)):
        raise UsageError(f"eos_token_id is {eos!r}; expected an integer or a list of integers")
    stop_ids = _list(conversation, "stop_token_ids", int, "integers")
    stop = _list(conversation, "stop_str", str, "strings")
    temperature, filters = _number(config, "temperature", 1.0), _filters(config)
    if temperature == 1.0 and filters == Filters():
        temperature, filters = DEFAULT_TEMPERATURE, Filters(top_p=DEFAULT_TOP_P)
    return GenerationDefaults(
        temperature=temperature,
        filters=filters,
        penalties=Penalties(
            _number(config, "presence_penalty", 0.0),
            _number(config, "frequency_penalty", 0.0),
            _number(config, "repetition_penalty", 1.0),
        ),
        eos_ids=frozenset([*([eos] if isinstance(eos, int) else eos), *stop_ids]),
        stop=tuple(filter(None, stop)),
        conv_template=conversation,
        image_processor=config.get("image_processor"),
    )


def _filters(config: Mapping[str, Any]) -> Filters:
    top_k = _number(config, "top_k", 0)
    if not top_k.is_integer():
        raise UsageError(f"top_k is {top_k}; expected an integer")
    return Filters(
        top_k=int(top_k),
        top_p=_number(config, "top_p", 1.0),
        min_p=_number(config, "min_p", 0.0),
        typical_p=_number(config, "typical_p", 1.0),
    )


def _list(config: Mapping[str, Any], key: str, kind: type, of: str) -> list[Any]:
    value = config.get(key, [])
    if not _is_list_of(kind, value):
        raise UsageError(f"{key} is {value!r}; expected a list of {of}")
    return list(value)


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{key} is {value!r}; expected a number")
    return float(value)
