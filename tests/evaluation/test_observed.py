"""Which libraries can be recompiled so that their kernels can be observed, and with which options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlc_errors import UnsupportedError
from mlc_evaluation import observed
from mlc_evaluation.observed import ModelFiles, options_of

METADATA: dict[str, Any] = {
    "target": {"kind": "cpu", "mcpu": "znver4"},
    "opt": "fusion=1;schedules=1;act=16",
    "quantization": "q4f16_1",
    "model_type": "llama",
    "context_window_size": 64,
    "prefill_chunk_size": 8,
    "max_batch_size": 4,
    "states": [{"kind": "paged_kv", "dtype": "int8"}, {"kind": "recurrent"}],
}


def test_options_of_a_library():
    assert options_of(METADATA) == {
        "device": '{"kind": "cpu", "mcpu": "znver4"}',
        "opt": "fusion=1;schedules=1;act=16",
        "tune": "",
        "quantization": "q4f16_1",
        "model_type": "llama",
        "overrides": "context_window_size=64;prefill_chunk_size=8;max_batch_size=4",
        "kv_cache_dtype": "int8",
    }
    assert options_of({**METADATA, "states": []})["kv_cache_dtype"] == "auto"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"target": {"kind": "cuda", "arch": ["sm_80", "sm_90"]}},
            "the library is for cuda:sm_80,sm_90; kernels are observed on CPUs only",
        ),
        ({"tune": "90s"}, "the library was compiled with --tune 90s; its kernels cannot be compiled again"),
    ],
)
def test_libraries_that_cannot_be_observed(
    changed: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(observed, "read_metadata", lambda path: {**METADATA, **changed})
    with pytest.raises(UnsupportedError, match=message), ModelFiles(tmp_path).open_observed(tensors=True):
        pass
