"""The tokenizer files collected from a checkpoint: order, tokenizer_info, chat template, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_toolchain.chat_config import TokenizerInfo
from mlc_toolchain.tokenizer import tokenizer_json as tj
from mlc_toolchain.tokenizer.files import TokenizerFiles, from_folder
from mlc_toolchain.tokenizer.info import tokenizer_info

SOURCE = Path(__file__).parents[1] / "data" / "reference" / "source"
WORDS = {"a": 0, "b": 1, "ab": 2}


def small(**changes) -> dict:
    return tj.assemble(tj.bpe(WORDS, [("a", "b")]), [tj.added_token(3, "<x>", special=True)]) | changes


def collect(folder: Path, **files: object) -> TokenizerFiles:
    """Write `files` (a text, or an object as JSON; __ in a name stands for a dot) and collect the tokenizer files."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)
    return from_folder(lambda name: p if (p := folder / name).is_file() else None, where="source")


def test_files_are_copied_in_the_public_order(tmp_path):
    (tmp_path / "special_tokens_map.json").write_text("{}")
    files = collect(
        tmp_path, tokenizer_config__json={}, tokenizer__json=small(), vocab__json=WORDS, merges__txt="a b\n"
    )
    assert list(files.files) == ["tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"]
    assert files.files["merges.txt"] == b"a b\n"


def test_the_reference_tokenizer():
    files = from_folder(lambda name: p if (p := SOURCE / name).is_file() else None, where="source")
    assert files.active_vocab_size == 283
    assert files.info == TokenizerInfo("byte_level", False, False)
    assert (files.token("bos_token"), files.token("pad_token"), files.chat_template) == ("<s>", None, None)


def test_active_vocabulary_reaches_the_largest_id(tmp_path):
    gap = small(added_tokens=[tj.added_token(9, "<x>", special=True)])
    # the library numbers added tokens itself: what counts is what it gives
    files = collect(tmp_path, tokenizer__json=gap)
    assert files.active_vocab_size == files.tokenizer.token_to_id("<x>") + 1


@pytest.mark.parametrize(
    ("normalizer", "decoder", "expected"),
    [
        (None, None, ("byte_fallback", False, False)),
        (None, {"type": "ByteLevel"}, ("byte_level", False, False)),
        (None, {"type": "Metaspace"}, ("byte_fallback", False, False)),
        (
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            ("byte_fallback", True, False),
        ),
        (
            {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": "▁"}]},
            {"type": "Sequence", "decoders": [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            ("byte_fallback", True, True),
        ),
        ({"type": "Prepend", "prepend": "_"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}, None),
    ],
)
def test_tokenizer_info(normalizer, decoder, expected):
    info = tokenizer_info({"normalizer": normalizer, "decoder": decoder}, where="test")
    assert info == TokenizerInfo(*(expected or ("byte_fallback", False, False)))


@pytest.mark.parametrize("decoder", [{"type": "Sequence"}, {"type": 3}, "ByteLevel", [], {"decoders": []}])
def test_tokenizer_info_of_broken_steps(decoder):
    with pytest.raises(MLCError, match=r"step without a type|no list of decoders"):
        tokenizer_info({"decoder": decoder}, where="test")


NAMED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({"tokenizer_config__json": {"chat_template": "C"}}, "C"),
        ({"tokenizer_config__json": {"chat_template": NAMED}}, "D"),
        ({"tokenizer_config__json": {"chat_template": NAMED[:1]}}, "T"),
        ({"tokenizer_config__json": {"chat_template": "C"}, "chat_template__jinja": "J\n"}, "J\n"),
        ({"tokenizer_config__json": {"chat_template": "C"}, "chat_template__json": {"chat_template": "P"}}, "P"),
        ({"tokenizer_config__json": {"chat_template": None}}, None),
    ],
)
def test_where_the_chat_template_comes_from(tmp_path, files, template):
    collected = collect(tmp_path, tokenizer__json=small(), **files)
    assert collected.chat_template == template
    assert collected.files.get("chat_template.jinja") == (None if template is None else template.encode())


def test_a_token_may_be_an_object(tmp_path):
    files = collect(tmp_path, tokenizer__json=small(), tokenizer_config__json={"eos_token": {"content": "<x>"}})
    assert files.token("eos_token") == "<x>"


def test_a_checkpoint_without_a_tokenizer(tmp_path):
    assert collect(tmp_path) is None
    assert collect(tmp_path, vocab__json={"a": 0}) is None


DOUBLE = [tj.added_token(3, "<x>", special=True), tj.added_token(4, "<x>", special=True)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer__json": "{"}, "not valid JSON"),
        ({"tokenizer__json": "[]"}, "got a JSON list; expected an object"),
        ({"tokenizer__json": {}}, "the tokenizer cannot be loaded: "),
        ({"tokenizer__json": small(added_tokens=DOUBLE)}, r"added_tokens has '<x>' twice \(ids 3 and 4\)"),
        ({"tokenizer__json": small(added_tokens=[{"id": 3}])}, "added_tokens has an entry without a text"),
        ({"tokenizer__json": small(), "tokenizer_config__json": {"chat_template": 3}}, "neither a text nor a list"),
        ({"tokenizer__json": small(), "tokenizer_config__json": "{]"}, "not valid JSON"),
    ],
)
def test_errors(tmp_path, files, message):
    with pytest.raises(MLCError, match=message):
        collect(tmp_path, **files)


@pytest.mark.parametrize("charsmap", ["", "BAAAAAECAwQ="], ids=["panics when loaded", "panics when used"])
def test_a_panic_of_the_library_is_an_error_of_ours(tmp_path, capfd, charsmap):
    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    with pytest.raises(MLCError, match="the tokenizer cannot be loaded"):
        collect(tmp_path, tokenizer__json=small(normalizer=normalizer))
    assert capfd.readouterr().err == ""


def test_conversion_is_reported(tmp_path):
    files = collect(tmp_path, vocab__json=WORDS, merges__txt="a b\n")
    assert files.notes == ("tokenizer.json is converted from vocab.json and merges.txt",)
    assert list(files.files) == ["vocab.json", "merges.txt", "tokenizer.json"]
    assert files.tokenizer.encode("ab").ids == [2]


def test_tokens_that_only_special_tokens_map_names(tmp_path):
    named = {"bos_token": {"content": "<x>"}, "eos_token": "<x>", "additional_special_tokens": ["<x>"]}
    files = collect(
        tmp_path,
        tokenizer__json=small(),
        tokenizer_config__json={"eos_token": "ab", "model_max_length": 8},
        special_tokens_map__json=named,
    )
    assert (files.token("bos_token"), files.token("eos_token")) == ("<x>", "ab")
    written = json.loads(files.files["tokenizer_config.json"])
    assert written == {"eos_token": "ab", "model_max_length": 8, "bos_token": "<x>"}
    assert files.notes == ("tokenizer_config.json takes bos_token from special_tokens_map.json",)
