"""The tokenizer of a GGUF file gives the ids of llama.cpp, and damaged metadata raises MLCError."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.source import resolve_source
from mlc_toolchain.tokenizer import pretokenizers
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.files import from_gguf_metadata
from mlc_toolchain.tokenizer.gguf import from_gguf
from mlc_toolchain.tokenizer.sentencepiece import read_model
from mlc_toolchain.tokenizer.tiktoken import LETTERS
from tests.toolchain.test_tokenizer_convert import LINES, train_sentencepiece

# [text, ids that llama.cpp 0.3.36 gives, special tokens recognised, none added]
SMOLLM2 = json.loads((Path(__file__).parents[1] / "data" / "tok_smollm2.json").read_text())
TEXTS = [text for text, _ in SMOLLM2]


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf):
    return from_gguf_metadata(resolve_source(str(smollm2_gguf)).metadata, where="smollm2")


def test_smollm2_ids_are_llama_cpps(smollm2):
    got = smollm2.tokenizer.encode_batch(TEXTS, add_special_tokens=False)
    assert [encoding.ids for encoding in got] == [ids for _, ids in SMOLLM2]


def test_smollm2_decodes_to_the_text(smollm2):
    for text, ids in SMOLLM2:
        assert smollm2.tokenizer.decode(ids, skip_special_tokens=False) == text


def test_smollm2_files_and_facts(smollm2):
    assert list(smollm2.files) == ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    assert smollm2.active_vocab_size == 49152
    assert smollm2.info.token_postproc_method == "byte_level"
    assert (smollm2.token("bos_token"), smollm2.token("eos_token")) == ("<|im_start|>", "<|im_end|>")
    assert smollm2.files["chat_template.jinja"].startswith(b"{% for message in messages %}{% if loop.first")
    special = [t for t in smollm2.tokenizer.get_added_tokens_decoder().values() if t.special]
    assert len(special) == 17


def test_smollm2_loads_in_transformers(smollm2, tmp_path):
    from transformers import AutoTokenizer

    for name, data in smollm2.files.items():
        (tmp_path / name).write_bytes(data)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == 49152
    assert [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS] == [ids for _, ids in SMOLLM2]
    messages = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.fixture(scope="module")
def trained():
    """A SentencePiece BPE model like Llama's, and the metadata that llama.cpp's converter writes for it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in TEXTS for line in text.split("\n") if line.strip()),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(sp.get_piece_size())
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [sp.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [sp.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return sp, metadata


def test_sentencepiece_kind_gives_the_librarys_ids(trained):
    sp, metadata = trained
    files = from_gguf_metadata(metadata, where="test")
    texts = [text for text in TEXTS if "<|" not in text]
    got = files.tokenizer.encode_batch(texts)
    assert [encoding.ids for encoding in got] == [[1, *sp.encode(text)] for text in texts]
    assert files.info.prepend_space_in_encode and files.info.strip_space_in_decode
    assert files.info.token_postproc_method == "byte_fallback"


def test_unused_entries_at_the_end_are_no_tokens(trained):
    _, metadata = trained
    count = len(metadata["tokenizer.ggml.tokens"])
    padded = {
        **metadata,
        "tokenizer.ggml.tokens": metadata["tokenizer.ggml.tokens"] + ["[PAD1]", "[PAD2]"],
        "tokenizer.ggml.token_type": metadata["tokenizer.ggml.token_type"] + [5, 5],
        "tokenizer.ggml.scores": metadata["tokenizer.ggml.scores"] + [0.0, 0.0],
    }
    assert from_gguf_metadata(padded, where="test").active_vocab_size == count


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", None, "tokenizer.ggml.model is missing"),
        ("model", 3, "tokenizer.ggml.model has the type int; expected a string"),
        ("tokens", "abc", "tokenizer.ggml.tokens has the type str; expected an array"),
        ("tokens", [1, 2], "tokenizer.ggml.tokens has items of a wrong type"),
        ("tokens", ["a", "a"], "2 tokens have 600 types"),
        ("scores", [], r"has 0 scores; expected 600"),
        ("bos_token_id", 600, "tokenizer.ggml.bos_token_id is 600; the file has 600 tokens"),
        ("add_space_prefix", "no", "tokenizer.ggml.add_space_prefix has the type str; expected true or false"),
    ],
)
def test_damaged_metadata(trained, key, value, message):
    with pytest.raises(MLCError, match=message) as error:
        from_gguf({**trained[1], f"tokenizer.ggml.{key}": value}, where="some.gguf")
    assert error.value.where == ("some.gguf",)


def test_a_token_twice(trained):
    _, metadata = trained
    tokens = [*metadata["tokenizer.ggml.tokens"][:-1], "<s>"]
    with pytest.raises(MLCError, match="has the token '<s>' twice"):
        from_gguf({**metadata, "tokenizer.ggml.tokens": tokens}, where="test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "plamo2"}, "a tokenizer of kind 'plamo2'; supported are gpt2, llama, bert, t5, rwkv"),
        ({"tokenizer.ggml.pre": "klingon"}, "names the pretokenizer 'klingon'; supported are a.x-4.0, "),
    ],
)
def test_kinds_that_are_not_supported(change, message):
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.merges": []}
    with pytest.raises(UnsupportedError, match=message):
        from_gguf({**metadata, **change}, where="test")


def test_a_merge_without_a_space():
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.merges": ["ab"]}
    with pytest.raises(MLCError, match="has the line 'ab'; expected two tokens"):
        from_gguf(metadata, where="test")


SAMPLE = "I'VE 12345 HelloWorld/x\n\n  नमस्ते, 漢字!"
WORDS = {
    "gpt-2": "I|'|VE| 12345| HelloWorld|/|x|\n\n | नमस|्|त|े,| 漢字|!",
    "smollm": "I|'|VE| |1|2|3|4|5| HelloWorld|/|x|\n\n | नमस|्|त|े,| 漢字|!",
    "llama-bpe": "I|'VE| |123|45| HelloWorld|/x|\n\n| | नमस|्त|े,| 漢字|!",
    "qwen2": "I|'VE| |1|2|3|4|5| HelloWorld|/x|\n\n| | नमस|्त|े,| 漢字|!",
    "qwen35": "I|'VE| |1|2|3|4|5| HelloWorld|/x|\n\n| | नमस्ते|,| 漢字|!",
    "gpt-4o": "I'VE| |123|45| Hello|World|/x|\n\n| | नमस्ते|,| 漢字|!",
    "tekken": "I|'VE| |1|2|3|4|5| Hello|World|/x|\n\n| | नमस्ते|,| 漢字|!",
    "falcon": "I|'|VE| |123|45| HelloWorld|/|x|\n\n | नमस|्|त|े|,| 漢字|!",
    "deepseek-llm": "I|'|VE| |12345| HelloWorld|/|x|\n|\n|  |नमस्ते|,| |漢字|!",
    "deepseek-coder": "I|'|VE| |1|2|3|4|5| HelloWorld|/|x|\n|\n| | |नमस|्|त|े|,| |漢字|!",
    "deepseek-v3": "I|'VE| |123|45| HelloWorld|/x|\n\n| | नमस्ते|,| |漢字|!",
    "default": "I|'|VE| |123|45| HelloWorld|/|x|\n\n | नमस|्|त|े|,| 漢字|!",
}


@pytest.mark.parametrize("name", WORDS)
def test_words(name):
    data = tj.assemble(tj.bpe({"a": 0}, []), [], pre_tokenizer=pretokenizers.pre_tokenizer(name))
    pre_tokenizer = tj.load(tj.to_text(data), where=name).pre_tokenizer
    of_letter = {letter: byte for byte, letter in LETTERS.items()}
    words = [bytes(of_letter[c] for c in word).decode() for word, _ in pre_tokenizer.pre_tokenize_str(SAMPLE)]
    assert words == WORDS[name].split("|")


@pytest.mark.parametrize("ends", [{}, {"add_eos_token": False, "add_bos_token": True}], ids=["t5", "bos"])
def test_unigram_gives_sentencepieces_ids(ends):
    data = train_sentencepiece(model_type="unigram")
    theirs, model = sentencepiece.SentencePieceProcessor(model_proto=data), read_model(data, where="test")
    texts, scores, types = (list(column) for column in zip(*model.pieces))
    metadata = {"model": "t5", "pre": "default", "scores": [*scores, -1e4], "token_type": [*types, 5]}
    metadata |= {"tokens": [*texts, "[PAD600]"], "precompiled_charsmap": list(model.charsmap)}
    metadata |= {"add_space_prefix": True, "remove_extra_whitespaces": True, **ends}
    metadata |= {"bos_token_id": theirs.bos_id(), "eos_token_id": theirs.eos_id(), "unknown_token_id": theirs.unk_id()}
    ours = from_gguf_metadata({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, where="a.gguf")
    before, after = ([theirs.bos_id()], []) if ends else ([], [theirs.eos_id()])
    for line in LINES[:200]:
        assert ours.tokenizer.encode(line).ids == [*before, *theirs.encode(line), *after]
    assert len(ours.tokenizer.get_vocab()) == len(texts)
