"""Convert vocab.json and merges.txt, GPT-2's files, to tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.chat_config import is_id
from mlc_toolchain.readers.bounded_json import parse_json_object
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.added_tokens import added_tokens
from mlc_toolchain.tokenizer.pretokenizers import QWEN2, split_words

GPT2_CLASSES = ("GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer")
QWEN2_CLASSES = ("Qwen2Tokenizer",)


def from_vocab_and_merges(
    vocab_json: bytes, merges_txt: bytes, config: Mapping[str, Any], added_json: Mapping[str, Any], *, where: str
) -> dict[str, Any]:
    """Convert; config (tokenizer_config.json) names the tokenizer class, added_json is added_tokens.json."""
    vocab = _vocab(vocab_json, where)
    merges = _merges(merges_txt, vocab, where)
    added = added_tokens(vocab, config, added_json)
    name = str(config.get("tokenizer_class") or GPT2_CLASSES[0]).removesuffix("Fast")
    if name in GPT2_CLASSES:
        normalizer = None
        words = tj.byte_level(use_regex=True) | {"add_prefix_space": config.get("add_prefix_space") is True}
    elif name in QWEN2_CLASSES:
        normalizer, words = {"type": "NFC"}, split_words(QWEN2)
    else:
        raise UnsupportedError(
            f"vocab.json and merges.txt belong to a {name}; supported are {', '.join(GPT2_CLASSES + QWEN2_CLASSES)}",
            where=[where],
            hint="save the tokenizer with transformers: tokenizer.save_pretrained(folder) writes tokenizer.json",
        )
    decoder = tj.byte_level(use_regex=True)
    model = tj.bpe(vocab, merges)
    return tj.assemble(model, added.values(), normalizer=normalizer, pre_tokenizer=words, decoder=decoder)


def _vocab(data: bytes, where: str) -> dict[str, int]:
    vocab = parse_json_object(data, Path(where) / "vocab.json")
    wrong = [token for token, token_id in vocab.items() if not is_id(token_id)]
    if wrong:
        raise MLCError(f"vocab.json gives {wrong[0]!r} the id {str(vocab[wrong[0]])[:80]}", where=[where])
    return vocab


def _merges(data: bytes, vocab: Mapping[str, int], where: str) -> list[tuple[str, str]]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as e:
        raise MLCError(f"merges.txt is not UTF-8 at byte {e.start}", where=[where]) from None
    merges = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2 or pair[0] + pair[1] not in vocab:
            raise MLCError(f"merges.txt has the line {line[:80]!r}", where=[f"{where}, line {number}"])
        merges.append((pair[0], pair[1]))
    return merges
