"""Pre-tokenizers of byte-level BPE (how text is split into words before merging), by their names in GGUF files."""

from __future__ import annotations

from typing import Any

from mlc_errors import UnsupportedError
from mlc_toolchain.tokenizer.tokenizer_json import byte_level, sequence, split

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_PATH_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str) -> str:
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}|{_PUNCTUATION}"


def _cased_words(digits: str, contraction: str) -> str:
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{_UPPER}*{_LOWER}+{contraction}|{lead}{_UPPER}+{_LOWER}*{contraction}"
    return rf"{words}|\p{{N}}{digits}|{_PATH_PUNCTUATION}"


GPT2 = (_GPT2,)
LLAMA3 = (_words("{1,3}"),)
QWEN2 = (_words(""),)
QWEN3_5 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
SINGLE_DIGITS = (r"\p{N}", _GPT2)
GPT4O = (_cased_words("{1,3}", f"{_CONTRACTION}?"),)
TEKKEN = (_cased_words("", ""),)
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")
# Letters of scripts with upper and lower case.
_CASED = (
    "A-Za-z\u00b5À-ÖØ-öø-ƺƼ-ƿ\u01c4-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-\u03f5Ϸ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"
    "Ὀ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149ⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ"
    "Ꞌ-ꞎꭰ-ꮿ\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_HAN_HANGUL = "\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff"
DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    f"[{_HAN_HANGUL}]+",
    r"\p{N}+",
)
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", f"[{_HAN_HANGUL}]+", r"\p{N}")
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)

UNNAMED = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")

_NAMES = {
    GPT2: "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat mpt olmo jais trillion granite-docling a.x-4.0 "
    "mellum modern-bert exaone4",
    LLAMA3: "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4 glm5",
    QWEN2: "qwen2 stablelm2 deepseek-r1-qwen hunyuan kormo megrez grok-2 solar-open",
    QWEN3_5: "qwen35",
    SINGLE_DIGITS: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    GPT4O: "gpt-4o llama4 kanana2 minimax-m2",
    TEKKEN: "tekken",
    FALCON: "falcon",
    DEEPSEEK_LLM: "deepseek-llm",
    DEEPSEEK_CODER: "deepseek-coder",
    DEEPSEEK_V3: "deepseek-v3 hunyuan-dense joyai-llm",
    UNNAMED: "default",
}
_PATTERNS = {name: patterns for patterns, names in _NAMES.items() for name in names.split()}
_WHOLE_WORDS = frozenset("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 glm4 glm5 tekken".split())
_STARTS_WITH_BOS = frozenset("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken".split())


def split_words(patterns: tuple[str, ...]) -> dict[str, Any]:
    """A pre_tokenizer that splits by each pattern in turn and then maps bytes to printable characters."""
    steps = [*map(split, patterns), byte_level(use_regex=False)]
    return sequence("pretokenizers", steps) or steps[0]


def pre_tokenizer(name: str) -> dict[str, Any]:
    """The pre_tokenizer of tokenizer.json for the name in a GGUF's tokenizer.ggml.pre."""
    patterns = _PATTERNS.get(name)
    if patterns is None:
        raise UnsupportedError(
            f"the GGUF file names the pretokenizer {name!r}; supported are {', '.join(sorted(_PATTERNS))}",
            hint="convert from the original checkpoint's folder, which has a tokenizer.json",
        )
    return split_words(patterns)


def takes_whole_words(name: str) -> bool:
    """Whether words in the vocabulary are encoded without merging (``ignore_merges``)."""
    return name in _WHOLE_WORDS


def starts_with_bos(name: str) -> bool:
    """Whether texts start with the BOS token by default, if the file does not say."""
    return name in _STARTS_WITH_BOS
