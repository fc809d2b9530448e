"""Models on the Hub given to commands that run models: converted models, checkpoints, GGUF files."""

from __future__ import annotations

from pathlib import Path

from mlc_errors import MLCError, ResourceError
from mlc_toolchain.chat_config import FILE_NAME
from mlc_toolchain.hub import HubSource
from mlc_toolchain.model_folder import model_folder
from mlc_toolchain.readers.base import CheckpointError
from mlc_toolchain.source import HUB_PREFIX, resolve_source


def fetched(text: str) -> Path | tuple[str, object]:
    """Download a converted model and return its folder; for a checkpoint, its name with commit, and its identity."""
    source = resolve_source(text)
    if not isinstance(source, HubSource):
        return str(source.path), str(source.path.resolve())
    try:
        commit = source.path.name
    except (CheckpointError, ResourceError) as error:
        return _converted(text, error)
    if source.file(FILE_NAME) is not None:
        return model_folder(text)
    pinned = f"{HUB_PREFIX}{source.name}@{commit}"
    return pinned, pinned


def _converted(text: str, error: MLCError) -> Path:
    """Download a converted model, which has no config.json; raises ``error`` if it is not one."""
    try:
        return model_folder(text)
    except MLCError:
        raise error from None
