"""mlc-chat-config.json is read strictly: the first key that is missing or wrong is named; unknown keys are ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_errors import MLCError
from mlc_toolchain.chat_config import parse_chat_config, read_chat_config

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "q4f16_1"
GOOD = json.loads((REFERENCE / "mlc-chat-config.json").read_text())


def test_the_public_tools_file_is_written_back_byte_for_byte():
    text = (REFERENCE / "mlc-chat-config.json").read_text()
    assert read_chat_config(REFERENCE).to_json() == text
    assert read_chat_config(REFERENCE / "mlc-chat-config.json").to_json() == text


def test_keys_of_newer_and_older_tools():
    newer = parse_chat_config({**GOOD, "frobnicate": 1}, where="test")
    assert "frobnicate" not in newer.to_dict()
    older = {key: value for key, value in GOOD.items() if key not in ("model_task", "embedding_metadata")}
    assert parse_chat_config(older, where="test").to_dict() == GOOD


@pytest.mark.parametrize("key", [key for key in GOOD if key not in ("version", "model_task", "embedding_metadata")])
def test_a_missing_key(key):
    with pytest.raises(MLCError, match=f"^{key} is missing"):
        parse_chat_config({k: v for k, v in GOOD.items() if k != key}, where="test")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", 3, "model_type is 3; expected a string"),
        ("vocab_size", 0, "vocab_size is 0; expected a positive integer"),
        ("vocab_size", True, "vocab_size is true; expected a positive integer"),
        ("context_window_size", -2, "context_window_size is -2; expected an integer, -1 when not used"),
        ("temperature", float("nan"), "temperature is NaN; expected a number"),
        ("eos_token_id", [], r"eos_token_id is \[\]; expected a token id or a list of them"),
        ("tokenizer_files", ["../x"], "expected a list of file names"),
        ("tokenizer_info", {"token_postproc_method": "magic"}, "expected an object with token_postproc_method"),
        ("tokenizer_info", {"strip_space_in_decode": 1}, "expected an object with token_postproc_method"),
        ("conv_template", "llama-3", 'conv_template is "llama-3"; expected an object'),
        ("conv_template", {}, "has no role assistant and user"),
        ("model_task", "paint", "expected chat or embedding"),
    ],
)
def test_a_wrong_value(key, value, message):
    with pytest.raises(MLCError, match=message):
        parse_chat_config({**GOOD, key: value}, where="test")


def test_a_folder_without_the_file(tmp_path):
    with pytest.raises(MLCError, match="mlc-chat-config.json does not exist") as error:
        read_chat_config(tmp_path)
    assert error.value.hint == "gen_config writes it"
