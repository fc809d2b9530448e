"""The WordPiece tokenizer of a GGUF file, which marks word starts (▁) where BERT marks continuations (##)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlc_toolchain.tokenizer import tokenizer_json as tj

REST = "##"
MAX_CHARACTERS = 100  # maximum length of a word, as in BERT; longer words are unknown tokens


def spelled(texts: Sequence[str], control: Sequence[int]) -> list[str]:
    """Convert a vocabulary to BERT's form: ``▁word`` to ``word``, ``ing`` to ``##ing``; control: ids to keep."""
    kept = set(control)

    def spelling(text: str) -> str:
        return text.removeprefix(tj.SPACE) if text.startswith(tj.SPACE) else REST + text

    return [text if i in kept else spelling(text) for i, text in enumerate(texts)]


def word_pieces(vocab: Mapping[str, int], unknown: str) -> dict[str, dict[str, Any]]:
    """Model, normalizer, pre-tokenizer and decoder. A vocabulary without capital letters implies lowercasing."""
    words = [text for text in vocab if not text.startswith("[")]
    lowercase = not any(text != text.lower() for text in words)
    return {
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": REST,
            "max_input_chars_per_word": MAX_CHARACTERS,
            "vocab": dict(vocab),
        },
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": REST, "cleanup": True},
    }
