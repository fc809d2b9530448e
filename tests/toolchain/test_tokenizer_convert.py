"""Tokenizer files without a tokenizer.json convert to one that gives the original library's ids."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
import sentencepiece
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.byte_bpe import from_vocab_and_merges
from mlc_toolchain.tokenizer.pretokenizers import GPT2, GPT4O, LLAMA3, QWEN2
from mlc_toolchain.tokenizer.sentencepiece import from_sentencepiece
from mlc_toolchain.tokenizer.tiktoken import LETTERS, from_tiktoken, is_tiktoken

TEXTS = [text for text, _ in json.loads((Path(__file__).parents[1] / "data" / "tok_smollm2.json").read_text())]
LINES = [line for text in TEXTS for line in text.split("\n") if line.strip()]
AS_IS = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def loaded(data: dict) -> Tokenizer:
    return tj.load(tj.to_text(data), where="test")


def ids(tokenizer: Tokenizer, texts: list[str], special: bool = False) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=special)]


def train_sentencepiece(**options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=600,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe", "byte_fallback": True, **AS_IS},
        {"model_type": "bpe"},
        {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False, **AS_IS},
        {"model_type": "unigram"},
        {"model_type": "unigram", "byte_fallback": True, **AS_IS},
    ],
    ids=["bpe-bytes", "bpe-nfkc", "bpe-no-prefix", "unigram-nfkc", "unigram-bytes"],
)
def test_sentencepiece_gives_the_librarys_ids(options):
    data = train_sentencepiece(**options)
    original = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = loaded(from_sentencepiece(data, {}, {}, where="test"))
    texts = [
        t for t in TEXTS if "aaaa" not in t and "<|" not in t
    ]  # equally likely segmentations of aaaa: any is right
    assert ids(tokenizer, texts) == [original.encode(text) for text in texts]
    assert len(texts) > 75


def test_sentencepiece_user_defined_pieces_are_one_token():
    data = train_sentencepiece(model_type="bpe", user_defined_symbols=["<|x|>"], add_dummy_prefix=False, **AS_IS)
    original = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = loaded(from_sentencepiece(data, {}, {}, where="test"))
    text = "Hello<|x|>world <|x|> x"
    assert ids(tokenizer, [text]) == [original.encode(text)]
    assert tokenizer.decode(original.encode(text)) == text


def test_sentencepiece_frame_and_added_tokens():
    data = train_sentencepiece(model_type="bpe", byte_fallback=True, **AS_IS)
    size = sentencepiece.SentencePieceProcessor(model_proto=data).get_piece_size()
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "add_eos_token": True,
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "added_tokens_decoder": {str(size): {"content": "<|im_end|>", "special": True}},
    }
    tokenizer = loaded(from_sentencepiece(data, config, {"<pad>": size + 1}, where="test"))
    (framed,) = ids(tokenizer, ["a<|im_end|><pad>"], special=True)
    assert (framed[0], framed[-3:]) == (1, [size, size + 1, 2])
    assert tokenizer.decode(framed) == "a<pad>"


def test_sentencepiece_refuses_what_it_cannot_convert():
    with pytest.raises(UnsupportedError, match="the SentencePiece model has characters; supported are unigram and BPE"):
        from_sentencepiece(train_sentencepiece(model_type="char"), {}, {}, where="test")
    with pytest.raises(MLCError, match="has no pieces"):
        from_sentencepiece(b"", {}, {}, where="test")


def test_damaged_sentencepiece_files_give_one_error():
    """Truncated or with a byte changed: MLCError, or a valid model (when cut between two pieces)."""
    data = train_sentencepiece(model_type="bpe", byte_fallback=True, **AS_IS)
    damaged = [data[:cut] for cut in range(1, 200)]
    damaged += [data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :] for at in range(0, len(data), 29)]
    refused = 0
    for changed in damaged:
        try:
            loaded(from_sentencepiece(changed, {}, {}, where="test"))
        except MLCError:
            refused += 1
    assert refused > len(damaged) / 2


@pytest.fixture(scope="module")
def ranks() -> dict[bytes, int]:
    """A byte-level vocabulary in the order of its merges, as tiktoken stores it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = [LETTERS[b] for b in range(256)]
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet))
    of_letter = {letter: byte for byte, letter in LETTERS.items()}
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    return {bytes(of_letter[c] for c in text): rank for rank, (text, _) in enumerate(by_id)}


def tiktoken_file(ranks: dict[bytes, int]) -> bytes:
    return b"\n".join(base64.b64encode(token) + b" %d" % rank for token, rank in ranks.items())


@pytest.mark.parametrize("patterns", [GPT2, LLAMA3, QWEN2, GPT4O], ids=["gpt2", "llama3", "qwen", "gpt4o"])
def test_tiktoken_gives_the_librarys_ids(ranks, patterns):
    specials = {"<|im_start|>": len(ranks), "<|im_end|>": len(ranks) + 1, "<|endoftext|>": len(ranks) + 2}
    (pattern,) = patterns
    original = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    data = tiktoken_file(ranks)
    assert is_tiktoken(data)
    tokenizer = loaded(from_tiktoken(data, {}, specials, where="test", patterns=patterns))
    assert ids(tokenizer, TEXTS) == [original.encode(text, allowed_special="all") for text in TEXTS]


def test_tiktoken_refuses_unknown_vocabularies(ranks):
    with pytest.raises(
        UnsupportedError, match=rf"a tiktoken file of {len(ranks)} ranks is not known; known are 50256, "
    ):
        from_tiktoken(tiktoken_file(ranks), {}, {}, where="test")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"YQ== 0\nYg== x", r"expected base64 of a token and its rank\n  in   test, line 2"),
        (b"YQ== 0\n%% 1", "expected base64"),
        (b"YQ== 0\nYg== 2", "the ranks of 2 tokens are not 0 to 1"),
    ],
)
def test_damaged_tiktoken_files(data, message):
    with pytest.raises(MLCError, match=message):
        from_tiktoken(data, {}, {}, where="test", patterns=GPT2)


def vocab_and_merges(ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    vocab = {"".join(LETTERS[b] for b in token): rank for token, rank in ranks.items()}
    merges = tj.merges_by_rank({text: rank for text, rank in vocab.items() if len(text) > 1}, vocab)
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    return json.dumps(vocab | {"<|endoftext|>": len(vocab)}).encode(), ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer"])
def test_vocab_and_merges_give_the_ids_of_transformers(ranks, name, tmp_path):
    import transformers

    vocab, merges = vocab_and_merges(ranks)
    (tmp_path / "vocab.json").write_bytes(vocab)
    (tmp_path / "merges.txt").write_bytes(merges)
    config = {"tokenizer_class": name, "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    original = getattr(transformers, name).from_pretrained(tmp_path)
    tokenizer = loaded(from_vocab_and_merges(vocab, merges, config, {}, where="test"))
    texts = [text for text in TEXTS if "<|im" not in text]
    assert ids(tokenizer, texts) == [original.encode(text, add_special_tokens=False) for text in texts]


@pytest.mark.parametrize(
    ("vocab", "merges", "config", "message"),
    [
        (b'{"a": "x"}', b"", {}, "vocab.json gives 'a' the id x"),
        (b'{"a": 0}', b"a b\n", {}, "merges.txt has the line 'a b'\n  in   test, line 1"),
        (b'{"a": 0}', b"\xff", {}, "merges.txt is not UTF-8 at byte 0"),
        (b"[", b"", {}, "not valid JSON"),
        (b'{"a": 0}', b"", {"tokenizer_class": "KlingonTokenizer"}, "belong to a KlingonTokenizer; supported are GPT2"),
        (b'{"a": 0}', b"", {"added_tokens_decoder": {"x": {"content": "b"}}}, "has the id 'x'; expected an integer"),
        (b'{"a": 0}', b"", {"added_tokens_decoder": {"1": {}}}, "added_tokens_decoder has no text for id 1"),
    ],
)
def test_damaged_vocab_and_merges(vocab, merges, config, message):
    with pytest.raises(MLCError, match=message):
        from_vocab_and_merges(vocab, merges, config, {}, where="test")
