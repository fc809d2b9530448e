"""Convert tokenizer.model, SentencePiece's file, to tokenizer.json."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.added_tokens import added_tokens
from mlc_toolchain.tokenizer.protobuf import fields

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_KINDS = {3: "words", 4: "characters"}
# Tokenizer classes that prepend the BOS token unless their config says otherwise.
_BOS_CLASSES = ("Llama", "CodeLlama", "Gemma", "InternLM", "Mistral")


@dataclass
class SentencePieceModel:
    """The file's contents. pieces: (text, score, type) by id. charsmap: compiled character normalization, or empty."""

    pieces: list[tuple[str, float, int]] = field(default_factory=list)
    kind: int = UNIGRAM
    byte_fallback: bool = False
    space_after_word: bool = False
    charsmap: bytes = b""
    space_before_text: bool = True
    removes_extra_spaces: bool = True
    escapes_spaces: bool = True

    def of_type(self, *types: int) -> dict[str, int]:
        return {text: i for i, (text, _, kind) in enumerate(self.pieces) if kind in types}


def from_sentencepiece(
    data: bytes, config: Mapping[str, Any], added_json: Mapping[str, Any], *, where: str
) -> dict[str, Any]:
    """Convert the file's bytes; config is tokenizer_config.json, added_json added_tokens.json."""
    m = read_model(data, where=where)
    vocab = {text: i for i, (text, _, _) in enumerate(m.pieces)}
    if len(vocab) != len(m.pieces):
        raise MLCError("the SentencePiece model has a piece twice", where=[where])
    special = {i: tj.added_token(i, text, special=True) for text, i in m.of_type(CONTROL, UNKNOWN).items()}
    own = {i: tj.added_token(i, _written(text), special=False) for text, i in m.of_type(USER_DEFINED).items()}
    added = own | special | added_tokens(vocab, config, added_json)
    frame = _frame(config, vocab | {token["content"]: i for i, token in added.items()})
    return assembled(m, added.values(), frame, where=where)


def assembled(
    m: SentencePieceModel, added: Iterable[dict[str, Any]], frame: dict[str, Any] | None, *, where: str
) -> dict[str, Any]:
    """The tokenizer.json of a model. added: added tokens. frame: post-processor that adds tokens around a text."""
    spaces = tj.spaced(prefix=m.space_before_text)
    normalizers = [*_text_cleaning(m), *_members(spaces["normalizer"])]
    return tj.assemble(
        _model(m, {text: i for i, (text, _, _) in enumerate(m.pieces)}, where),
        added,
        normalizer=tj.sequence("normalizers", normalizers),
        post_processor=frame,
        decoder=spaces["decoder"],
    )


def read_model(data: bytes, *, where: str) -> SentencePieceModel:
    """Parse the file. Raises MLCError if it is malformed, UnsupportedError for kinds other than unigram and BPE."""
    m = SentencePieceModel()
    for number, value in fields(data, where=where):
        if number == 1 and isinstance(value, bytes):
            m.pieces.append(_piece(value, where))
        elif number == 2 and isinstance(value, bytes):
            _read_trainer(m, value, where)
        elif number == 3 and isinstance(value, bytes):
            _read_normalizer(m, value, where)
    if not m.pieces:
        raise MLCError("the SentencePiece model has no pieces", where=[where])
    if m.kind not in (UNIGRAM, BPE) or m.space_after_word or not m.escapes_spaces:
        problem = _KINDS.get(m.kind, "pieces with the space after the word or unescaped")
        raise UnsupportedError(f"the SentencePiece model has {problem}; supported are unigram and BPE", where=[where])
    return m


def _piece(data: bytes, where: str) -> tuple[str, float, int]:
    found = dict(fields(data, where=where))
    text, score, kind = found.get(1), found.get(2, 0.0), _number(found, 3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, float) or not math.isfinite(score):
        raise MLCError("the SentencePiece model has a piece without text or score", where=[where])
    try:
        return text.decode(), score, kind
    except UnicodeDecodeError:
        raise MLCError(f"the SentencePiece model has the piece {text[:40]!r}, not UTF-8", where=[where]) from None


def _number(found: Mapping[int, int | float | bytes], field_number: int, default: int) -> int:
    """An integer field; -1 for a field of another type."""
    value = found.get(field_number, default)
    return value if isinstance(value, int) else -1


def _read_trainer(m: SentencePieceModel, data: bytes, where: str) -> None:
    found = dict(fields(data, where=where))
    m.kind = _number(found, 3, UNIGRAM)
    m.byte_fallback = bool(found.get(35, 0))
    m.space_after_word = bool(found.get(24, 0))


def _read_normalizer(m: SentencePieceModel, data: bytes, where: str) -> None:
    found = dict(fields(data, where=where))
    charsmap = found.get(2, b"")
    m.charsmap = charsmap if isinstance(charsmap, bytes) else b""
    m.space_before_text = bool(found.get(3, 1))
    m.removes_extra_spaces = bool(found.get(4, 1))
    m.escapes_spaces = bool(found.get(5, 1))


def _model(m: SentencePieceModel, vocab: Mapping[str, int], where: str) -> dict[str, Any]:
    unknown = m.of_type(UNKNOWN)
    if len(unknown) != 1:
        raise MLCError(f"the SentencePiece model has {len(unknown)} unknown pieces; expected 1", where=[where])
    unk_token, unk_id = next(iter(unknown.items()))
    if m.kind == UNIGRAM:
        pieces = [(text, score) for text, score, _ in m.pieces]
        return tj.unigram(pieces, unk_id=unk_id, byte_fallback=m.byte_fallback)
    mergeable = {text: -m.pieces[i][1] for text, i in m.of_type(NORMAL, USER_DEFINED).items()}
    merges = tj.merges_by_rank(mergeable, vocab)
    return tj.bpe(vocab, merges, unk_token=unk_token, byte_fallback=m.byte_fallback)


def _text_cleaning(m: SentencePieceModel) -> list[dict[str, Any]]:
    """Normalizers: character normalization and removal of extra spaces."""
    steps: list[dict[str, Any]] = []
    if m.charsmap:
        encoded = base64.b64encode(m.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if m.removes_extra_spaces:
        steps.append({"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return steps


def _frame(config: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any] | None:
    """A post-processor that adds BOS and EOS tokens, if the tokenizer's config or class requires them."""
    named = str(config.get("tokenizer_class") or "Llama").startswith(_BOS_CLASSES)
    settings = (("add_bos_token", "bos_token", "<s>", named), ("add_eos_token", "eos_token", "</s>", False))
    before, after = (
        [(text, ids[text])] if config.get(flag, default) is True and (text := _token(config, key, usual)) in ids else []
        for flag, key, usual, default in settings
    )
    return tj.surround(before, after)


def _token(config: Mapping[str, Any], key: str, usual: str) -> str:
    value = config.get(key, usual)
    return value["content"] if isinstance(value, Mapping) and isinstance(value.get("content"), str) else str(value)


def _written(text: str) -> str:
    return text.replace(tj.SPACE, " ")


def _members(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    if step is None:
        return []
    return step["normalizers"] if step["type"] == "Sequence" else [step]
