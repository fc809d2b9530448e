"""RWKV's vocabularies as text and in GGUF files become the runtime's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_runtime.tokenizer import Tokenizer
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.tokenizer import world
from mlc_toolchain.tokenizer.files import from_folder, from_gguf_metadata
from model_zoo import rwkv

WORDS = ["\n\n", "'it's", '"', " the", "世界", b"\xe4\xb8", "\\n", " "]
TOKENS = [bytes([b]) for b in range(256)] + [w.encode() if isinstance(w, str) else w for w in WORDS[:-1]]
TEXT = "it's \\n the\n\n世界 世é\x00"


def lines() -> str:
    texts = [t.decode("latin-1") if len(t) == 1 and t < b"\x80" else t for t in TOKENS[:256]] + WORDS[:-1]
    return "".join(f"{i} {text!r} {len(TOKENS[i - 1])}\n" for i, text in enumerate(texts, 1))


def metadata() -> dict[str, object]:
    escaped = ["<s>", *(repr(token)[2:-1] for token in TOKENS), "[PAD1]", "[PAD2]"]
    types = [3, *[1] * len(TOKENS), 5, 5]
    named = {"model": "rwkv", "tokens": escaped, "token_type": types, "bos_token_id": 0, "eos_token_id": 0}
    return {f"tokenizer.ggml.{key}": value for key, value in named.items()} | {"tokenizer.chat_template": "rwkv-world"}


def files_in(folder: Path):
    (folder / world.SOURCE).write_text(lines(), encoding="utf-8")
    return lambda name: folder / name if (folder / name).is_file() else None


def test_both_sources_give_the_same_tokenizer(tmp_path: Path) -> None:
    from_text, from_gguf = from_folder(files_in(tmp_path), where="folder"), from_gguf_metadata(metadata(), where="a")
    assert from_text is not None
    assert from_text.files["tokenizer_model"] == from_gguf.files["tokenizer_model"]
    assert from_text.active_vocab_size == from_gguf.active_vocab_size == len(TOKENS) + 1
    assert (from_text.token("bos_token"), from_gguf.chat_template) == ("<s>", None)
    for name, data in from_text.files.items():
        (tmp_path / name).write_bytes(data)
    tokenizer = Tokenizer(tmp_path)
    ids = tokenizer.encode(TEXT)
    assert [TOKENS[i - 1] for i in ids[:3]] == [b"i", b"t", b"'"]
    assert TOKENS.index("世界".encode()) + 1 in ids and TOKENS.index(b"\xe4\xb8") + 1 in ids
    assert tokenizer.decode(ids) == TEXT


def test_the_file_is_that_of_the_public_tools() -> None:
    """MessagePack: a map of 3, 128 as one byte, 65535 as two."""
    assert world.packed({1: b"a", 128: b"bc", 65535: b""}) == b"\x83\x01\xc4\x01a\xcc\x80\xc4\x02bc\xcd\xff\xff\xc4\x00"
    long = world.packed(dict.fromkeys(range(1, 17), b"x" * 256))
    assert long.startswith(b"\xde\x00\x10\x01\xc5\x01\x00x")


@pytest.mark.parametrize("line", ["1 'a' 2", "x 'a' 1", "1 a 1", "1 5 1", "1", "1 'a'b 1", "1 __import__('os') 1"])
def test_lines_that_are_no_tokens(line: str) -> None:
    with pytest.raises(MLCError, match="expected an id, a literal and its number of bytes") as error:
        world.from_text(f"1 'a' 1\n{line}\n".encode(), where="v.txt")
    assert error.value.where == ("v.txt, line 2",)


def test_tokens_that_are_not_bytes() -> None:
    with pytest.raises(MLCError, match="the token 1 is '世'; expected bytes, escaped"):
        world.from_escaped(["a", "世"], [1, 1], where="a.gguf")


def test_gen_config_of_a_checkpoint(tmp_path: Path) -> None:
    files_in(tmp_path)
    config = {"model_type": "rwkv6", "vocab_size": 1003, "hidden_size": 64, "num_hidden_layers": 2, "bos_token_id": 0}
    assert rwkv.RWKV6.name == config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": 0}))
    options = GenConfigOptions(str(tmp_path), "q0f32", tmp_path / "out", conv_template="rwkv_world")
    report = gen_config(options)
    assert report.files == ("tokenizer_model", "tokenizer_config.json", "mlc-chat-config.json")
    assert (report.active_vocab_size, report.eos_token_ids) == (len(TOKENS) + 1, (0,))
    assert Tokenizer(tmp_path / "out").encode(" the") == [TOKENS.index(b" the") + 1]
