"""RWKV's tokenizer takes the longest matching token, and streams characters whose bytes are several tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlc_errors import MLCError, UsageError
from mlc_runtime.tokenizer import REPLACEMENT, Tokenizer
from mlc_runtime.world_tokenizer import FILE_NAME, WorldTokenizer, load_world_tokenizer
from mlc_toolchain.tokenizer.world import packed

WORDS = [b" ", b"  ", b" the", b"the", b"then", b"\n\n", "世界".encode(), "世".encode()[:2], "ü".encode(), b"\x9f\x8c"]
VOCABULARY = {1 + b: bytes([b]) for b in range(256)}
VOCABULARY |= {257 + i: word for i, word in enumerate([w for w in WORDS if len(w) > 1])}
IDS = {token: i for i, token in VOCABULARY.items()}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("world")
    (folder / FILE_NAME).write_bytes(packed(VOCABULARY))
    return Tokenizer(folder)


def longest_first(text: str) -> list[int]:
    data, ids = text.encode(), []
    while data:
        token = max((t for t in IDS if data.startswith(t)), key=len)
        ids.append(IDS[token])
        data = data[len(token) :]
    return ids


def test_ids(tokenizer: Tokenizer) -> None:
    parts = [b"then", b" the", b"  ", b"\n\n", "世界".encode(), "世".encode()[:2], b"\x96", "ü".encode()]
    assert tokenizer.encode("then the  \n\n世界世ü"[:-2] + "世ü") == [IDS[part] for part in parts]
    assert tokenizer.encode("") == []
    assert tokenizer.encode_within("then the", 1) == [IDS[b"then"]]
    assert tokenizer.encode("then the") == [IDS[b"then"], IDS[b" the"]]
    with pytest.raises(UsageError, match="unpaired surrogates"):
        tokenizer.encode("\ud800")


@given(text=st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("the \n世界ü🌍"), max_size=40))
def test_any_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == longest_first(text)
    assert tokenizer.decode(ids) == text
    stream = tokenizer.stream()
    pieces = [*(stream.add(i) for i in ids), stream.finish()]
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces) or REPLACEMENT in text


def test_half_a_character_is_held_back(tokenizer: Tokenizer) -> None:
    first, last = IDS["世".encode()[:2]], IDS["世".encode()[2:]]
    stream = tokenizer.stream()
    assert [stream.add(first), stream.add(last), stream.add(first), stream.finish()] == ["", "世", "", REPLACEMENT]
    assert tokenizer.decode([first, IDS[b"a"]]) == f"{REPLACEMENT}a"


def test_the_token_that_ends_a_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_ids == {0}
    assert (tokenizer.token_id("<s>"), tokenizer.token(0), tokenizer.token_id("then")) == (0, "<s>", IDS[b"then"])
    assert tokenizer.decode([IDS[b"the"], 0, 99999]) == "the"
    assert tokenizer.decode([IDS[b"the"], 0], skip_special_tokens=False) == "the<s>"
    assert (tokenizer.token(99999), tokenizer.token_id("no such"), tokenizer.vocab_size) == (None, None, 266)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged at byte 0"),
        (b"\x81\x01", "damaged at byte 2"),
        (b"\x81\x01\xc4\x05ab", "damaged at byte 4"),
        (b"\x80\x00", "damaged at byte 1"),
        (b"\x81\x01\xa1a", "damaged at byte 3"),
        (b"\xdf\xff\xff\xff\xff", "damaged at byte 5"),
        (b"\x81\x01\xc4\x01a", "no token for the byte 0"),
    ],
)
def test_damaged_files(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(MLCError, match=message):
        load_world_tokenizer(tmp_path / FILE_NAME)


def test_ids_out_of_range() -> None:
    with pytest.raises(MLCError, match=r"has the id 0; expected 1 to 16777215"):
        WorldTokenizer(VOCABULARY | {0: b"zero"}, where="a")
