"""The tokenizer files of a model folder, collected from a checkpoint: copied where they exist, else converted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_files import read_limited
from mlc_runtime import world_tokenizer
from mlc_runtime.tokenizer import AnyTokenizer
from mlc_runtime.world_tokenizer import WorldTokenizer
from mlc_toolchain.chat_config import TokenizerInfo
from mlc_toolchain.readers.bounded_json import parse_json_object, read_json_object
from mlc_toolchain.tokenizer import chat_template as templates
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer import world
from mlc_toolchain.tokenizer.byte_bpe import from_vocab_and_merges
from mlc_toolchain.tokenizer.gguf import chat_template_of, from_gguf, token_table
from mlc_toolchain.tokenizer.info import active_vocab_size, check_added_tokens, tokenizer_info
from mlc_toolchain.tokenizer.sentencepiece import from_sentencepiece
from mlc_toolchain.tokenizer.tiktoken import from_tiktoken, is_tiktoken

COPIED = (
    "tokenizer.model",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer_config.json",
)
LIMIT_BYTES = 256 << 20
TIKTOKEN = ("qwen.tiktoken", "tokenizer.tiktoken", "cl100k_base.tiktoken", "o200k_base.tiktoken", "tiktoken.model")
HOLDERS = ("tokenizer.json", "tokenizer.model", *TIKTOKEN)
"""Files that each contain a whole tokenizer, as vocab.json and merges.txt do together."""


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer. files: contents by name, in the order of "tokenizer_files". config: tokenizer_config.json.

    active_vocab_size: the largest token id + 1. notes: remarks for the user.
    """

    files: Mapping[str, bytes]
    tokenizer: AnyTokenizer
    info: TokenizerInfo
    active_vocab_size: int
    config: Mapping[str, Any]
    chat_template: str | None
    notes: tuple[str, ...] = ()

    def token(self, key: str) -> str | None:
        """The text of bos_token, eos_token, pad_token or unk_token."""
        return templates.token_text(self.config, key)


def from_folder(file: Callable[[str], Path | None], *, where: str) -> TokenizerFiles | None:
    """Collect from a checkpoint folder; file(name) is the path of a file in it, or None.

    None for a folder without a tokenizer. Raises MLCError for one that cannot be read.
    """
    vocabulary = file(world.SOURCE)
    if vocabulary is not None and file("tokenizer.json") is None:
        return _world_from_folder(vocabulary, file)
    if not any(file(name) for name in HOLDERS) and not all(file(name) for name in ("vocab.json", "merges.txt")):
        return None
    found = {name: path for name in COPIED if (path := file(name)) is not None}
    files = {name: _read(path) for name, path in found.items()}
    config = _object(found, "tokenizer_config.json")
    notes = []
    unnamed = _unnamed_tokens(file, config)
    if unnamed:
        config |= unnamed
        files["tokenizer_config.json"] = _json(config)
        notes.append(f"tokenizer_config.json takes {', '.join(unnamed)} from special_tokens_map.json")
    if "tokenizer.json" not in files:
        origin, converted = _convert(file, files, config, _object(found, "added_tokens.json"), where)
        files["tokenizer.json"] = tj.to_text(converted).encode()
        notes.append(f"tokenizer.json is converted from {origin}")
    template = templates.find_chat_template(file, config)
    return _collected(files, config, template, where, tuple(notes))


def from_gguf_metadata(metadata: Mapping[str, Any], *, where: str) -> TokenizerFiles:
    """Collect from the metadata of a GGUF file."""
    if metadata.get("tokenizer.ggml.model") == world.MODEL_NAME:
        return _world_from_gguf(metadata, where)
    embedded = from_gguf(metadata, where=where)
    files = {
        "tokenizer.json": tj.to_text(embedded.tokenizer).encode(),
        "tokenizer_config.json": _json(embedded.config),
    }
    return _collected(files, embedded.config, embedded.chat_template, where, ())


def _world_from_folder(vocabulary: Path, file: Callable[[str], Path | None]) -> TokenizerFiles:
    tokens = world.from_text(_read(vocabulary), where=str(vocabulary))
    path = file("tokenizer_config.json")
    config = {} if path is None else read_json_object(path)
    template = templates.find_chat_template(file, config)
    note = f"{world_tokenizer.FILE_NAME} is converted from {vocabulary.name}"
    return _world(tokens, config | _unnamed_tokens(file, config), template, str(vocabulary), note)


def _world_from_gguf(metadata: Mapping[str, Any], where: str) -> TokenizerFiles:
    """The World tokenizer of a GGUF file. Its template "rwkv-world" is a built-in name of llama.cpp, not Jinja text."""
    tokens = world.from_escaped(*token_table(metadata, where=where), where=where)
    template = chat_template_of(metadata, where=where)
    return _world(tokens, {}, None if template == "rwkv-world" else template, where)


def _world(
    tokens: Mapping[int, bytes], config: Mapping[str, Any], template: str | None, where: str, *notes: str
) -> TokenizerFiles:
    tokenizer = WorldTokenizer(tokens, where=where)
    ends = dict.fromkeys(("bos_token", "eos_token"), world_tokenizer.END_NAMES[0])
    config = {**ends, **{key: value for key, value in config.items() if value is not None}}
    files = {world_tokenizer.FILE_NAME: world.packed(tokens), "tokenizer_config.json": _json(config)}
    if template is not None:
        files[templates.FILE_NAME] = template.encode()
    return TokenizerFiles(files, tokenizer, TokenizerInfo(), max(tokens) + 1, config, template, notes)


def _collected(
    files: dict[str, bytes], config: dict[str, Any], template: str | None, where: str, notes: tuple[str, ...]
) -> TokenizerFiles:
    text = files["tokenizer.json"]
    data = parse_json_object(text, Path(where) / "tokenizer.json")
    check_added_tokens(data, where=f"{where}, tokenizer.json")
    tokenizer = tj.load(text.decode(), where=f"{where}, tokenizer.json")
    info = tokenizer_info(data, where=f"{where}, tokenizer.json")
    if template is not None:
        files[templates.FILE_NAME] = template.encode()
    return TokenizerFiles(files, tokenizer, info, active_vocab_size(tokenizer), config, template, notes)


def _convert(
    file: Callable[[str], Path | None],
    files: Mapping[str, bytes],
    config: Mapping[str, Any],
    added_json: Mapping[str, Any],
    where: str,
) -> tuple[str, dict[str, Any]]:
    """The name of the file that contains the tokenizer, and tokenizer.json converted from it."""
    model = files.get("tokenizer.model")
    if model is not None and is_tiktoken(model):
        return "tokenizer.model", from_tiktoken(model, config, added_json, where=f"{where}, tokenizer.model")
    if model is not None:
        return "tokenizer.model", from_sentencepiece(model, config, added_json, where=f"{where}, tokenizer.model")
    if "vocab.json" in files and "merges.txt" in files:
        vocab, merges = files["vocab.json"], files["merges.txt"]
        return "vocab.json and merges.txt", from_vocab_and_merges(vocab, merges, config, added_json, where=where)
    name, path = next((name, path) for name in TIKTOKEN if (path := file(name)) is not None)
    return name, from_tiktoken(_read(path), config, added_json, where=str(path))


def _read(path: Path) -> bytes:
    return read_limited(path, LIMIT_BYTES)


def _unnamed_tokens(file: Callable[[str], Path | None], config: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that older checkpoints name only in special_tokens_map.json."""
    path = file("special_tokens_map.json")
    named = {} if path is None else read_json_object(path)
    missing = [key for key in templates.TOKEN_KEYS if config.get(key) is None]
    return {key: text for key in missing if (text := templates.token_text(named, key)) is not None}


def _object(found: Mapping[str, Path], name: str) -> dict[str, Any]:
    return read_json_object(found[name]) if name in found else {}


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
