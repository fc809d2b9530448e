"""Streamed pieces concatenate to the text of all tokens; no piece ends inside a character."""

from __future__ import annotations

import json
import os

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers

from mlc_errors import MLCError
from mlc_runtime.tokenizer import REPLACEMENT, StopMatcher, Tokenizer
from tests.runtime.fake_library import byte_tokenizer

TEXT = "Grüße, 世界! 👩‍👩‍👧 a  b\n\tnaïve ﷽ "


def fallback_tokenizer() -> tokenizers.Tokenizer:
    """A tokenizer in SentencePiece's form: metaspace, characters, and byte fallback."""
    words = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), *"▁abcdefghijklmnopqrstuvwxyz,!"]
    model = models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    replace, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), strip])
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


@pytest.fixture(scope="module", params=[byte_tokenizer, fallback_tokenizer], ids=["byte-level", "byte-fallback"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    request.param().save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def pieces_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.add(i) for i in ids), stream.finish()]


def test_pieces_of_a_text(tokenizer):
    ids = tokenizer.encode(TEXT)
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == TEXT
    assert not any(REPLACEMENT in p for p in pieces)
    assert sum(p != "" for p in pieces) >= 30


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, 300), max_size=60))
def test_any_tokens_of_a_byte_level_tokenizer(tmp_path_factory, ids):
    folder = tmp_path_factory.getbasetemp()
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(folder)
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


def test_special_tokens_are_not_text(tokenizer):
    special = min(tokenizer.special_ids)
    ids = tokenizer.encode("ab cd")
    spread = [special, *ids[:3], special, special, *ids[3:]]
    assert "".join(pieces_of(tokenizer, spread)) == "ab cd"


def test_incomplete_characters_are_returned_by_finish(tokenizer):
    broken = next(i for i in range(300) if REPLACEMENT in tokenizer.decode([i]))
    assert pieces_of(tokenizer, [broken]) == ["", REPLACEMENT]
    stream = tokenizer.stream()
    assert any(stream.add(broken) for _ in range(40))


def test_decoding_work_per_token_is_bounded(tokenizer):
    decoded = []
    stream = tokenizer.stream()
    decode = tokenizer.decode
    tokenizer.decode = lambda ids: decoded.append(len(ids)) or decode(ids)
    for i in tokenizer.encode("abc " * 500):
        stream.add(i)
    del tokenizer.decode
    assert max(decoded) <= 4


def test_stop_matcher_holds_back_what_may_be_a_stop_text():
    matcher = StopMatcher(["<end>", "ST"])
    assert matcher.add("ab<e") == ("ab", False)
    assert matcher.add("x<en") == ("<ex", False)
    assert matcher.add("d") == ("", False)
    assert matcher.add(">tail") == ("", True)
    assert matcher.add("S") == ("", False)
    assert matcher.finish() == "S"


@given(st.text("ab<", max_size=30), st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3), st.integers(1, 5))
def test_stop_matcher_cuts_where_the_whole_text_would_be_cut(text, stops, step):
    matcher, shown, stopped = StopMatcher(stops), "", False
    for i in range(0, len(text), step):
        piece, stopped = matcher.add(text[i : i + step])
        shown += piece
        if stopped:
            break
    found = [at for s in stops if (at := text.find(s)) >= 0]
    assert stopped == bool(found)
    if not found:
        assert shown + matcher.finish() == text
    elif step == 1:
        first_end = min(text.find(s) + len(s) for s in stops if s in text)
        assert shown == text[: min(text.find(s) for s in stops if s in text[:first_end])]


@pytest.mark.parametrize("content", ["", "{}", "[" * 10_000, '{"model": {"type": "BPE"}}', "\xff"])
def test_damaged_tokenizer(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content, encoding="latin-1")
    with pytest.raises(MLCError, match=r"tokenizer.json is not readable"):
        Tokenizer(tmp_path)


def test_a_folder_whose_name_is_not_utf8(tmp_path):
    folder = tmp_path / os.fsdecode(b"m\xff")
    folder.mkdir()
    (folder / "tokenizer.json").write_text(byte_tokenizer().to_str())
    assert Tokenizer(folder).decode(Tokenizer(folder).encode(TEXT)) == TEXT


def test_a_panic_inside_the_library_is_an_error(tmp_path):
    damaged = json.loads(byte_tokenizer().to_str())
    damaged["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(damaged))
    with pytest.raises(MLCError, match="not readable"):
        Tokenizer(tmp_path)


def test_special_tokens_of_the_config(tmp_path):
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.special_token("bos_token") is None
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": {"content": "<bos>"}, "eos_token": null}')
    tokenizer = Tokenizer(tmp_path)
    assert (tokenizer.special_token("bos_token"), tokenizer.special_token("eos_token")) == ("<bos>", None)
    assert tokenizer.token_id("<bos>") == 257 and tokenizer.vocab_size == 258
