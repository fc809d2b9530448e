"""Tokens that added_tokens.json and tokenizer_config.json add to a checkpoint's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_errors import MLCError
from mlc_toolchain.chat_config import is_id
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.chat_template import TOKEN_KEYS, token_text

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def added_tokens(
    vocab: Mapping[str, int], config: Mapping[str, Any], added_json: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    """The entries of tokenizer.json's added_tokens, by id.

    config: tokenizer_config.json; its added_tokens_decoder has ids, texts and flags, and its bos_token … name special
    tokens of `vocab`. added_json: added_tokens.json, ids by text.
    """
    named = [text for key in TOKEN_KEYS if (text := token_text(config, key)) is not None]
    found = {vocab[text]: tj.added_token(vocab[text], text, special=True) for text in named if text in vocab}
    for text, token_id in added_json.items():
        found[_id(token_id, text)] = tj.added_token(token_id, text, special=text in named)
    decoder = config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, Mapping):
        raise MLCError("added_tokens_decoder is not an object", where=["tokenizer_config.json"])
    for key, entry in decoder.items():
        token_id = _id(int(key) if key.isdecimal() and len(key) < 10 else key, entry)
        found[token_id] = _entry(token_id, entry)
    return found


def _entry(token_id: int, entry: object) -> dict[str, Any]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str):
        raise MLCError(f"added_tokens_decoder has no text for id {token_id}", where=["tokenizer_config.json"])
    flags = {name: entry[name] for name in FLAGS if isinstance(entry.get(name), bool)}
    return tj.added_token(token_id, entry["content"], special=False) | flags


def _id(value: object, of: object) -> int:
    if not is_id(value):
        raise MLCError(f"the added token {str(of)[:80]!r} has the id {str(value)[:80]!r}; expected an integer")
    return value
