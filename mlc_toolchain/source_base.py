"""The interface of model sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from mlc_toolchain.readers.base import CheckpointReader

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
