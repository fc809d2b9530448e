"""Find the Jinja chat template and the named special tokens in a checkpoint's tokenizer files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from mlc_errors import MLCError
from mlc_files import read_limited
from mlc_toolchain.readers.bounded_json import read_json_object

FILE_NAME = "chat_template.jinja"
LIMIT_BYTES = 4 << 20
TOKEN_KEYS = ("bos_token", "eos_token", "pad_token", "unk_token")


def find_chat_template(file: Callable[[str], Path | None], config: Mapping[str, Any]) -> str | None:
    """The template in chat_template.jinja, else in chat_template.json, else in `config` (tokenizer_config.json)."""
    path = file(FILE_NAME)
    if path is not None:
        return _read_text(path)
    path = file("chat_template.json")
    if path is not None:
        return _choose(read_json_object(path).get("chat_template"), str(path))
    return _choose(config.get("chat_template"), "tokenizer_config.json, chat_template")


def token_text(config: Mapping[str, Any], key: str) -> str | None:
    """The text of bos_token, eos_token … in tokenizer_config.json, a string or an object with "content"."""
    value = config.get(key)
    if isinstance(value, Mapping):
        value = value.get("content")
    if value is not None and not is_text(value):
        raise MLCError(f"{key} is {str(value)[:80]!a}; expected a string", where=["tokenizer_config.json"])
    return value


def is_text(value: object) -> TypeGuard[str]:
    """Whether a JSON value is a string without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _choose(value: object, where: str) -> str | None:
    """The template itself, or from a list of named ones "default", else the first."""
    if value is None or is_text(value):
        return value
    if isinstance(value, list):
        value = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
    if isinstance(value, dict) and value:
        chosen = value.get("default", next(iter(value.values())))
        if is_text(chosen):
            return chosen
    raise MLCError("the chat template is neither a text nor a list of named texts", where=[where])


def _read_text(path: Path) -> str:
    """The file's text with unchanged line endings."""
    data = read_limited(path, LIMIT_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise MLCError(f"the chat template is not UTF-8 at byte {e.start}", where=[str(path)]) from None
