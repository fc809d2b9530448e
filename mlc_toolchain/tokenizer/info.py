"""Properties of a tokenizer.json: decoding of tokens to text, the ids in use, consistency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

from mlc_errors import MLCError
from mlc_toolchain.chat_config import TokenizerInfo
from mlc_toolchain.tokenizer.tokenizer_json import SPACE

_POSTPROC = {"ByteLevel": "byte_level", "ByteFallback": "byte_fallback"}


def tokenizer_info(data: Mapping[str, Any], *, where: str) -> TokenizerInfo:
    """Derive tokenizer_info from a tokenizer.json's normalizer and decoder.

    The last ByteLevel or ByteFallback decoder decides (byte_fallback without one); a normalizer that prepends ▁ gives
    prepend_space_in_encode; a decoder that strips one space at the start gives strip_space_in_decode.
    """
    normalizers = _steps(data.get("normalizer"), "normalizers", where)
    decoders = _steps(data.get("decoder"), "decoders", where)
    methods = [_POSTPROC[d["type"]] for d in decoders if d["type"] in _POSTPROC]
    return TokenizerInfo(
        token_postproc_method=methods[-1] if methods else "byte_fallback",
        prepend_space_in_encode=any(n["type"] == "Prepend" and n.get("prepend") == SPACE for n in normalizers),
        strip_space_in_decode=any(_strips_one_space(d) for d in decoders),
    )


def active_vocab_size(tokenizer: Tokenizer) -> int:
    """The largest token id + 1, added tokens included: the number of logits in use."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def check_added_tokens(data: Mapping[str, Any], *, where: str) -> None:
    """Raises MLCError if a text is listed twice in added_tokens, because readers then disagree about its id."""
    added = data.get("added_tokens")
    seen: dict[str, object] = {}
    for token in added if isinstance(added, list) else []:
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str):
            raise MLCError("added_tokens has an entry without a text", where=[where])
        if content in seen:
            ids = f"ids {seen[content]} and {token.get('id')}"
            hint = "remove one of the two entries from added_tokens"
            raise MLCError(f"added_tokens has {content!r} twice ({ids})", where=[where], hint=hint)
        seen[content] = token.get("id")


def _strips_one_space(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Strip" and (step.get("content"), step.get("start"), step.get("stop")) == (" ", 1, 0)


def _steps(value: object, key: str, where: str) -> list[dict[str, Any]]:
    """The single step or the members of a (possibly nested) Sequence."""
    if value is None:
        return []
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise MLCError(f"{key} has a step without a type", where=[where])
    if value["type"] != "Sequence":
        return [value]
    members = value.get(key)
    if not isinstance(members, list):
        raise MLCError(f"a Sequence has no list of {key}", where=[where])
    return [step for member in members for step in _steps(member, key, where)]
