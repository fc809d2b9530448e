"""Convert tiktoken files (a line per token: base64 of its bytes, its rank) to tokenizer.json."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.added_tokens import added_tokens
from mlc_toolchain.tokenizer.pretokenizers import GPT2, GPT4O, LLAMA3, QWEN2, split_words

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [b for b in range(256) if b not in _PRINTABLE]
LETTERS = {b: chr(b) for b in _PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(_HIDDEN)}

_QWEN_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))
_LLAMA3_SPECIALS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    *(f"<|reserved_special_token_{i}|>" for i in range(4)),
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|reserved_special_token_4|>",
    "<|eot_id|>",
    *(f"<|reserved_special_token_{i}|>" for i in range(5, 251)),
)
# Number of ranks -> split patterns, and the special tokens after the ranks if no other file names them.
_KNOWN: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    50256: (GPT2, ("<|endoftext|>",)),
    100256: (LLAMA3, ()),
    128000: (LLAMA3, _LLAMA3_SPECIALS),
    151329: (LLAMA3, ()),
    151643: (QWEN2, _QWEN_SPECIALS),
    199998: (GPT4O, ()),
}


def is_tiktoken(data: bytes) -> bool:
    """Whether a file called tokenizer.model is in tiktoken's format rather than SentencePiece's."""
    token, _, rank = data.split(b"\n", 1)[0].rstrip().partition(b" ")
    return rank.isdigit() and len(token) % 4 == 0


def from_tiktoken(
    data: bytes,
    config: Mapping[str, Any],
    added_json: Mapping[str, Any],
    *,
    where: str,
    patterns: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Convert; special tokens are from config (tokenizer_config.json), else from the table of known vocabularies.

    patterns: regular expressions that split words; None looks them up by the number of ranks.
    """
    ranks = _ranks(data, where)
    if patterns is None and len(ranks) not in _KNOWN:
        raise UnsupportedError(
            f"a tiktoken file of {len(ranks)} ranks is not known; known are {', '.join(map(str, _KNOWN))}",
            where=[where],
            hint="a tokenizer.json in the checkpoint's folder is taken instead",
        )
    known_patterns, specials = _KNOWN.get(len(ranks), ((), ()))
    vocab = {_letters(token): rank for token, rank in ranks.items()}
    merges = tj.merges_by_rank({_letters(t): r for t, r in ranks.items() if len(t) > 1}, vocab)
    added = added_tokens(vocab, config, added_json) or {
        i: tj.added_token(i, text, special=True) for i, text in enumerate(specials, start=len(ranks))
    }
    return tj.assemble(
        tj.bpe(vocab, merges, ignore_merges=True),
        added.values(),
        pre_tokenizer=split_words(patterns or known_patterns),
        decoder=tj.byte_level(use_regex=True),
    )


def _ranks(data: bytes, where: str) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank[:10])
        except (ValueError, binascii.Error):
            raise MLCError(
                f"got {line[:60]!r}; expected base64 of a token and its rank", where=[f"{where}, line {number}"]
            ) from None
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise MLCError(f"the ranks of {len(ranks)} tokens are not 0 to {len(ranks) - 1}", where=[where])
    return ranks


def _letters(token: bytes) -> str:
    return "".join(LETTERS[b] for b in token)
