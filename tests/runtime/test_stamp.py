"""A library together with the configuration of another model is rejected."""

from __future__ import annotations

import pytest

from mlc_errors import MLCError
from mlc_runtime import LLM
from mlc_runtime.stamp import STAMP
from tests.runtime.fake_library import FakeLibrary, metadata, write_folder

MADE_FOR = {
    "model_type": "llama",
    "quantization": "q4f16_1",
    "vocab_size": 258,
    "context_window_size": 64,
    "model_config": {"eps": 1e-5, "theta": 10000.0},
}


def open_llm(folder, **config: object) -> LLM:
    write_folder(folder, **{**MADE_FOR, **config})
    return LLM(folder, FakeLibrary({**metadata(258), STAMP: MADE_FOR}))


def test_what_does_not_concern_the_library_may_differ(tmp_path):
    assert open_llm(tmp_path, temperature=0.5, active_vocab_size=7).generate([1], max_tokens=2).token_ids


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization": "q8f16_1"}, 'quantization "q8f16_1"; the library was compiled for "q4f16_1"'),
        ({"context_window_size": 8192}, "context_window_size 8192; the library was compiled for 64"),
        ({"model_config": {"eps": 0.5, "theta": 10000.0}}, "model_config.eps 0.5; .* 1e-05"),
        ({"model_config": {"eps": 1e-5}}, "model_config.theta null; .* 10000.0"),
        ({"model_config": {"eps": 1e-5, "theta": 10000.0, "window": 4}}, "model_config.window 4; .* null"),
    ],
)
def test_another_configuration_is_refused(tmp_path, config, message):
    with pytest.raises(MLCError, match=f"^mlc-chat-config.json has {message}"):
        open_llm(tmp_path, **config)
