"""The default quantization of checkpoints."""

import logging

import pytest

from mlc_toolchain import default_quantization as module
from mlc_toolchain.default_quantization import Quantization, default_quantization
from mlc_toolchain.source import resolve_source
from tests.e2e.checkpoints import random_model, save_checkpoint

COMPATIBLE = Quantization("q4f16_1")


@pytest.fixture
def checkpoint(tmp_path):
    save_checkpoint(random_model("llama-odd-llama3"), tmp_path / "hf")
    return tmp_path / "hf"


def chosen(path):
    return default_quantization(str(path), resolve_source(str(path)), path / "out")


def test_decoders_are_calibrated(checkpoint):
    assert chosen(checkpoint) == Quantization("q4f16_nl", "auto")


def test_codes_of_the_compatible_scheme_are_kept(checkpoint, monkeypatch):
    monkeypatch.setattr(module, "keeps_form", lambda value, *_: "embed_tokens" not in str(value))
    assert chosen(checkpoint) == COMPATIBLE


def test_a_few_kept_codes_are_not_enough(checkpoint, monkeypatch):
    monkeypatch.setattr(module, "keeps_form", lambda value, *_: "q_proj" in str(value))
    assert chosen(checkpoint) == Quantization("q4f16_nl", "auto")


def test_without_a_tokenizer_there_is_no_calibration(checkpoint, caplog):
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    with caplog.at_level(logging.INFO):
        assert chosen(checkpoint) == COMPATIBLE
    assert "without calibration: there is no tokenizer" in caplog.text


def test_without_room_for_the_model_in_8_bits_there_is_no_calibration(checkpoint, monkeypatch, caplog):
    monkeypatch.setattr(module, "free_memory", lambda: 1000)
    with caplog.at_level(logging.INFO):
        assert chosen(checkpoint) == COMPATIBLE
    assert "bytes of 500 usable ones" in caplog.text
