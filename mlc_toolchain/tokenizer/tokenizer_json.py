"""tokenizer.json, the format of the `tokenizers` library: build, serialize and load it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tokenizers import Tokenizer

from mlc_errors import MLCError

SPACE = "▁"  # SentencePiece's symbol for a space
PROBE = "a é 漢字 1\n"  # encoded once when a tokenizer is loaded: some damage shows only then


def bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    unk_token: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """The "model" of byte pair encoding. merges: by priority. ignore_merges: a word in vocab is one token."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk_token,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unk_token is not None,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": dict(vocab),
        "merges": [list(pair) for pair in merges],
    }


def unigram(pieces: Sequence[tuple[str, float]], *, unk_id: int, byte_fallback: bool) -> dict[str, Any]:
    """The "model" of SentencePiece's unigram segmentation; pieces are (text, log probability) by id."""
    return {
        "type": "Unigram",
        "unk_id": unk_id,
        "vocab": [list(piece) for piece in pieces],
        "byte_fallback": byte_fallback,
    }


def byte_level(*, use_regex: bool) -> dict[str, Any]:
    """Maps bytes to printable characters; use_regex: also splits into words with GPT-2's pattern."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(pattern: str) -> dict[str, Any]:
    """A pre-tokenizer that splits the text into the matches of `pattern` and the text between them."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(kind: str, steps: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """A sequence of normalizers, pre-tokenizers or decoders (`kind` is the key that lists them); None if empty."""
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", kind: list(steps)}


def added_token(token_id: int, content: str, *, special: bool) -> dict[str, Any]:
    """A token that is matched before tokenization; special ones are omitted from decoded text."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": token_id, "content": content, **flags}


def surround(before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]] = ()) -> dict[str, Any] | None:
    """A post-processor that adds tokens (text, id) before and after every text; None without tokens."""
    if not before and not after:
        return None
    tokens = {text: {"id": text, "ids": [i], "tokens": [text]} for text, i in (*before, *after)}

    def framed(name: str, type_id: int) -> list[dict[str, Any]]:
        parts = [("SpecialToken", text) for text, _ in before] + [("Sequence", name)]
        parts += [("SpecialToken", text) for text, _ in after]
        return [{kind: {"id": text, "type_id": type_id}} for kind, text in parts]

    pair = framed("A", 0) + framed("B", 1)
    return {"type": "TemplateProcessing", "single": framed("A", 0), "pair": pair, "special_tokens": tokens}


def assemble(
    model: dict[str, Any],
    added_tokens: Iterable[dict[str, Any]],
    *,
    normalizer: dict[str, Any] | None = None,
    pre_tokenizer: dict[str, Any] | None = None,
    post_processor: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole file as an object."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added_tokens, key=lambda token: token["id"]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def spaced(*, prefix: bool) -> dict[str, dict[str, Any] | None]:
    """Normalizer and decoder of a SentencePiece model, which encodes spaces as ▁; prefix: prepend one to the text."""
    escape = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    unescape = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": sequence("normalizers", [*prepend, escape]),
        "decoder": sequence("decoders", [unescape, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]),
    }


def merges_by_rank(rank: Mapping[str, float], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges that a vocabulary implies: pairs of pieces whose concatenation is a piece, lowest `rank` first."""
    found = []
    for piece, order in rank.items():
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        known = [(vocab[a], vocab[b], a, b) for a, b in pairs if a in vocab and b in vocab]
        found += [(order, i, j, a, b) for i, j, a, b in sorted(known)]
    return [(a, b) for _, _, _, a, b in sorted(found, key=lambda entry: entry[0])]


def to_text(data: dict[str, Any]) -> str:
    """The file's text."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def load(text: str, *, where: str) -> Tokenizer:
    """Load the text of a tokenizer.json. Raises MLCError if the library rejects it or panics."""
    try:
        with _silent_stderr():
            tokenizer = Tokenizer.from_str(text)
            tokenizer.encode(PROBE)
        return tokenizer
    except BaseException as e:  # a panic of the Rust library derives from BaseException
        if isinstance(e, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        reason = " ".join(str(e).split())[:300]
    raise MLCError(
        f"the tokenizer cannot be loaded: {reason}",
        where=[where],
        hint="save it again with the tokenizers library it was made with, or report the file",
    )


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Suppress stderr, to which a panic prints its message; the exception contains it as well."""
    saved = os.dup(2)
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
