"""Read quantized checkpoints under the names of the unquantized model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_toolchain.float8_checkpoint import BlockFp8Checkpoint
from mlc_toolchain.integer_checkpoint import AWQCheckpoint, GPTQCheckpoint
from mlc_toolchain.mxfp4_checkpoint import Mxfp4Checkpoint
from mlc_toolchain.nvfp4_checkpoint import CompressedNvfp4Checkpoint, Nvfp4Checkpoint
from mlc_toolchain.packed_settings import (
    AWQSettings,
    BlockSettings,
    GPTQSettings,
    Mxfp4Settings,
    Nvfp4Settings,
    packed_settings,
)
from mlc_toolchain.readers.base import CheckpointReader


def open_packed(reader: CheckpointReader, config: Mapping[str, Any], where: str) -> CheckpointReader:
    """Wrap ``reader`` according to config.json's quantization_config; see ``packed_settings``."""
    match packed_settings(config, where):
        case None:
            return reader
        case AWQSettings() as settings:
            return AWQCheckpoint(reader, settings)
        case GPTQSettings() as settings:
            return GPTQCheckpoint(reader, settings)
        case BlockSettings() as settings:
            return BlockFp8Checkpoint(reader, settings)
        case Mxfp4Settings():
            return Mxfp4Checkpoint(reader)
        case Nvfp4Settings(compressed):
            return CompressedNvfp4Checkpoint(reader) if compressed else Nvfp4Checkpoint(reader)
