"""Find model folders written by gen_config and convert_weight, on this machine or on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from mlc_errors import MLCError, UsageError
from mlc_runtime.weight_index import TENSOR_CACHES, is_plain_name, read_shards
from mlc_toolchain.chat_config import FILE_NAME, read_chat_config
from mlc_toolchain.source import HUB_PREFIX, hub_source
from mlc_toolchain.tokenizer.chat_template import FILE_NAME as TEMPLATE


def config_path(model: str | Path) -> Path:
    """The mlc-chat-config.json that ``model`` names: the file, its folder, or ``HF://owner/name[@revision]``.

    Raises UsageError if there is none.
    """
    if _is_on_hub(model):
        return hub_source(str(model), FILE_NAME).path / FILE_NAME
    path = Path(model)
    path = path / FILE_NAME if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"{path} does not exist", hint=f"give a folder with {FILE_NAME}; gen_config makes one")
    return path


def model_folder(model: str | Path) -> Path:
    """The folder that ``model`` names; downloads weights and tokenizer for ``HF://owner/name[@revision]``."""
    if not _is_on_hub(model):
        return Path(model)
    source = hub_source(str(model), FILE_NAME)
    if not any(source.file(name) for name in TENSOR_CACHES):
        raise MLCError(
            "the repository has no weights of this format", where=[str(model)], hint="convert its checkpoint"
        )
    _, shards = read_shards(source.path)
    tokenizer = read_chat_config(source.path).tokenizer_files
    for name in (*tokenizer, TEMPLATE, *(shard.name for shard in shards)):
        if is_plain_name(name):
            source.file(name)
    return source.path


def _is_on_hub(model: str | Path) -> bool:
    return isinstance(model, str) and model.startswith(HUB_PREFIX)
