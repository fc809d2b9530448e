"""The interface of model sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from mlc_toolchain.packed_settings import with_settings_file
from mlc_toolchain.readers.base import CheckpointReader
from mlc_toolchain.readers.bounded_json import read_json_object

CONFIG = "config.json"


class ModelSource(ABC):
    """A model to convert. kind: "folder", "gguf", "preset" or "hub". path: the folder or file."""

    kind: str
    path: Path

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The model's config with Hugging Face's keys."""

    @abstractmethod
    def file(self, name: str) -> Path | None:
        """The path of a file beside the config (``tokenizer.json``), or None."""

    @abstractmethod
    def weights(self, source_format: str = "auto") -> CheckpointReader:
        """Open the checkpoint: every header is checked, no tensor is read."""


class RepositorySource(ModelSource):
    """A folder or repository in Hugging Face's layout."""

    def config(self) -> dict[str, Any]:
        """config.json with the settings of quantization, which may be in another file; raises UnsupportedError for
        settings in that file which are not supported."""
        return with_settings_file(read_json_object(self.path / CONFIG), self.file)
