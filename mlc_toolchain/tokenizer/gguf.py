"""Convert the tokenizer in a GGUF file's metadata to tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.tokenizer import pretokenizers
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.sentencepiece import SentencePieceModel, assembled
from mlc_toolchain.tokenizer.word_pieces import spelled, word_pieces
from mlc_toolchain.tokenizer.world import MODEL_NAME

UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6
_SURROUNDING = (("cls", "bos"), ("seperator", "eos"))  # the separator's key is misspelled in the format
_NAMED_TOKENS = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


@dataclass(frozen=True)
class EmbeddedTokenizer:
    """A converted tokenizer. tokenizer: tokenizer.json. config: tokenizer_config.json. chat_template: Jinja, if any."""

    tokenizer: dict[str, Any]
    config: dict[str, Any]
    chat_template: str | None


def from_gguf(metadata: Mapping[str, Any], *, where: str) -> EmbeddedTokenizer:
    """Convert the tokenizer in a GGUF file's metadata (tokenizer.ggml.*); `where` names the file in errors."""
    m = _Metadata(metadata, where)
    kind = m.text("tokenizer.ggml.model")
    if kind not in _CONVERTERS:
        raise UnsupportedError(
            f"the GGUF file has a tokenizer of kind {kind!r}; supported are {', '.join((*_CONVERTERS, MODEL_NAME))}",
            where=[where],
            hint="take the original checkpoint's folder as the source: it has a tokenizer.json",
        )
    tokens = _tokens(*token_table(metadata, where=where), where)
    tokenizer = _CONVERTERS[kind](m, tokens)
    return EmbeddedTokenizer(tokenizer, _config(m, tokens), chat_template_of(metadata, where=where))


def token_table(metadata: Mapping[str, Any], *, where: str) -> tuple[list[str], list[int]]:
    """The texts of the tokens by id, and their types. Raises MLCError if the metadata lacks them."""
    m = _Metadata(metadata, where)
    texts = m.items("tokenizer.ggml.tokens", str)
    types = m.items("tokenizer.ggml.token_type", int, [1] * len(texts))
    if len(types) != len(texts):
        raise MLCError(f"{len(texts)} tokens have {len(types)} types", where=[where])
    return texts, types


def chat_template_of(metadata: Mapping[str, Any], *, where: str) -> str | None:
    """The Jinja text in the metadata, if any."""
    return _Metadata(metadata, where).text("tokenizer.chat_template", None)


class _Metadata:
    """Typed lookups with errors that name the key."""

    def __init__(self, values: Mapping[str, Any], where: str):
        self._values = values
        self.where = where

    def text(self, key: str, *default: str | None) -> Any:
        return self._get(key, str, "a string", *default)

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, bool, "true or false", default)

    def items(self, key: str, kind: type | tuple[type, ...], *default: list) -> list:
        found = self._get(key, (list, tuple), "an array", *default)
        if not all(isinstance(v, kind) for v in found):
            raise MLCError(f"{key} has items of a wrong type", where=[self.where])
        return list(found)

    def token_id(self, name: str, count: int) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        value = self._get(key, int, "an integer", None)
        if value is not None and not 0 <= value < count:
            raise MLCError(f"{key} is {value}; the file has {count} tokens", where=[self.where])
        return value

    def _get(self, key: str, kind: type | tuple[type, ...], expected: str, *default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            if default:
                return default[0]
            raise MLCError(f"{key} is missing", where=[self.where], hint="the GGUF file carries no tokenizer")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise MLCError(f"{key} has the type {type(value).__name__}; expected {expected}", where=[self.where])
        return value


@dataclass(frozen=True)
class _Tokens:
    """The tokens by id, without the unused ones at the end of the table."""

    texts: list[str]
    types: list[int]

    def of_type(self, *types: int) -> list[tuple[int, str]]:
        return [(i, text) for i, text in enumerate(self.texts) if self.types[i] in types]

    def added(self) -> list[dict[str, Any]]:
        special = [tj.added_token(i, text, special=True) for i, text in self.of_type(CONTROL, UNKNOWN)]
        return special + [tj.added_token(i, text, special=False) for i, text in self.of_type(USER_DEFINED)]


def _tokens(texts: list[str], types: list[int], where: str) -> _Tokens:
    while types and types[-1] == UNUSED:
        types.pop()
    texts = texts[: len(types)]
    if len(set(texts)) != len(texts):
        again = next(text for i, text in enumerate(texts) if texts.index(text) != i)
        raise MLCError(f"the tokenizer has the token {again!r} twice", where=[where])
    return _Tokens(texts, types)


def _byte_level(m: _Metadata, tokens: _Tokens) -> dict[str, Any]:
    pre = m.text("tokenizer.ggml.pre", "default")
    vocab = {text: i for i, text in enumerate(tokens.texts)}
    merges = [_merge(line, m.where) for line in m.items("tokenizer.ggml.merges", str)]
    model = tj.bpe(vocab, merges, ignore_merges=pretokenizers.takes_whole_words(pre))
    return tj.assemble(
        model,
        tokens.added(),
        pre_tokenizer=pretokenizers.pre_tokenizer(pre),
        post_processor=_prefix(m, tokens, pretokenizers.starts_with_bos(pre)),
        decoder=tj.byte_level(use_regex=True),
    )


def _merge(line: str, where: str) -> tuple[str, str]:
    left, _, right = line[1:].partition(" ")  # a merge may start with the space that it merges
    if not right:
        raise MLCError(f"tokenizer.ggml.merges has the line {line[:80]!r}; expected two tokens", where=[where])
    return line[:1] + left, right


def _sentencepiece(m: _Metadata, tokens: _Tokens) -> dict[str, Any]:
    scores = _scores(m, tokens)
    vocab = {text: i for i, text in enumerate(tokens.texts)}
    mergeable = {text: -scores[i] for i, text in tokens.of_type(1)}
    unknown = m.token_id("unknown", len(tokens.texts))
    unk_token = tokens.texts[unknown] if unknown is not None else None
    fallback = bool(tokens.of_type(BYTE))
    model = tj.bpe(vocab, tj.merges_by_rank(mergeable, vocab), unk_token=unk_token, byte_fallback=fallback)
    spaces = tj.spaced(prefix=m.flag("tokenizer.ggml.add_space_prefix", True))
    return tj.assemble(model, tokens.added(), post_processor=_prefix(m, tokens, True), **spaces)


def _scores(m: _Metadata, tokens: _Tokens) -> list[float]:
    scores = m.items("tokenizer.ggml.scores", (int, float))
    if len(scores) < len(tokens.texts):
        raise MLCError(f"the tokenizer has {len(scores)} scores; expected {len(tokens.texts)}", where=[m.where])
    return scores


def _unigram(m: _Metadata, tokens: _Tokens) -> dict[str, Any]:
    """SentencePiece's unigram model, as in T5; by default a text ends with the end token."""
    model = SentencePieceModel(
        list(zip(tokens.texts, _scores(m, tokens), tokens.types, strict=False)),
        byte_fallback=bool(tokens.of_type(BYTE)),
        charsmap=bytes(m.items("tokenizer.ggml.precompiled_charsmap", int, [])),
        space_before_text=m.flag("tokenizer.ggml.add_space_prefix", True),
        removes_extra_spaces=m.flag("tokenizer.ggml.remove_extra_whitespaces", False),
    )
    frame = tj.surround(_end(m, tokens, "bos", False), _end(m, tokens, "eos", True))
    return assembled(model, tokens.added(), frame, where=m.where)


def _word_pieces(m: _Metadata, tokens: _Tokens) -> dict[str, Any]:
    control = [i for i, _ in tokens.of_type(CONTROL, UNKNOWN)]
    texts = spelled(tokens.texts, control)
    vocab = {text: i for i, text in enumerate(texts)}
    unknown = m.token_id("unknown", len(texts))
    ids = [[i for key in keys if (i := m.token_id(key, len(texts))) is not None][:1] for keys in _SURROUNDING]
    before, after = ([(texts[i], i) for i in found] for found in ids)
    return tj.assemble(
        added_tokens=[tj.added_token(i, texts[i], special=True) for i in control],
        post_processor=tj.surround(before, after),
        **word_pieces(vocab, "[UNK]" if unknown is None else texts[unknown]),
    )


def _prefix(m: _Metadata, tokens: _Tokens, default: bool) -> dict[str, Any] | None:
    return tj.surround(_end(m, tokens, "bos", default))


def _end(m: _Metadata, tokens: _Tokens, name: str, default: bool) -> list[tuple[str, int]]:
    """The token ``bos`` or ``eos`` as a list of one, if it is added at this end of a text; else []."""
    found = m.token_id(name, len(tokens.texts))
    wanted = found is not None and m.flag(f"tokenizer.ggml.add_{name}_token", default)
    return [(tokens.texts[found], found)] if wanted and found is not None else []


def _config(m: _Metadata, tokens: _Tokens) -> dict[str, Any]:
    named = {key: m.token_id(name, len(tokens.texts)) for name, key in _NAMED_TOKENS.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: tokens.texts[i] for key, i in named.items() if i is not None},
        "clean_up_tokenization_spaces": False,
    }


_CONVERTERS = {"gpt2": _byte_level, "llama": _sentencepiece, "bert": _word_pieces, "t5": _unigram}
