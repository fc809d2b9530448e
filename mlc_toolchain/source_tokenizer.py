"""The tokenizer that comes with a model's source."""

from __future__ import annotations

from mlc_toolchain.source import GGUFSource
from mlc_toolchain.source_base import ModelSource
from mlc_toolchain.tokenizer.files import TokenizerFiles, from_folder, from_gguf_metadata


def source_tokenizer(source: ModelSource) -> TokenizerFiles | None:
    """The source's tokenizer; None for a preset, and for a checkpoint without one."""
    if source.kind == "preset":
        return None
    if isinstance(source, GGUFSource):
        return from_gguf_metadata(source.metadata, where=str(source.path))
    return from_folder(source.file, where=str(source.path))
