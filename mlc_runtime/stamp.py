"""Check that a library was compiled for the mlc-chat-config.json in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlc_errors import MLCError
from mlc_runtime.folder_config import read_config

STAMP = "chat_config"
KEYS = (
    *("model_type", "quantization", "vocab_size", "model_config"),
    *("context_window_size", "sliding_window_size", "prefill_chunk_size", "attention_sink_size"),
)
"""The configuration keys that a library depends on; ``compile`` writes them into the metadata as ``STAMP``."""


def check_stamp(metadata: Mapping[str, Any], config: Path) -> None:
    """Raises MLCError, naming the first key that differs, unless the library was compiled for the configuration.

    A library without a stamp (not made by ``compile``) and a folder without the file are accepted.
    """
    if STAMP not in metadata or not config.is_file():
        return
    compiled, found = _flat(metadata[STAMP]), _flat(read_config(config))
    for key in {**compiled, **found}:
        if compiled.get(key) != found.get(key):
            here, there = (json.dumps(values.get(key))[:80] for values in (found, compiled))
            raise MLCError(
                f"{config.name} has {key} {here}; the library was compiled for {there}",
                where=[str(config)],
                hint="compile the model again",
            )


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``KEYS``, those of model_config by its own keys."""
    model = config.get("model_config")
    inner = {f"model_config.{k}": v for k, v in model.items()} if isinstance(model, dict) else {}
    return {key: config[key] for key in KEYS if key in config and key != "model_config"} | inner
