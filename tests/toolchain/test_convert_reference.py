"""Conversions of a small Llama are byte-identical to mlc_llm's."""

import hashlib
import json
from pathlib import Path

import pytest

from mlc_toolchain.conversion_plan import describe_model, plan_weights
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.source import resolve_source
from quantization.schemes import get_scheme

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
SCHEMES = "q0f16 q0bf16 q0f32 q3f16_0 q3f16_1 q4f16_0 q4f16_1 q4bf16_1 q4f32_1".split()


@pytest.mark.parametrize("name", SCHEMES)
def test_output_equals_the_reference_byte_for_byte(name, tmp_path):
    source = resolve_source(str(REFERENCE / "source"))
    scheme = get_scheme(name)
    model = describe_model(source.config(), "auto", scheme)
    run_conversion(plan_weights(model, scheme, source.weights(), f32_storage="bf16"), tmp_path)
    expected = REFERENCE / name
    indexes = sorted(path.name for path in expected.glob("tensor-cache*.json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["params_shard_0.bin", *indexes]
    for index in indexes:
        assert (tmp_path / index).read_bytes() == (expected / index).read_bytes()
    shard = (tmp_path / "params_shard_0.bin").read_bytes()
    told = json.loads((expected / "tensor-cache.json").read_text())["records"][0]["md5sum"]
    assert hashlib.md5(shard).hexdigest() == told
    if (expected / "params_shard_0.bin").exists():
        assert shard == (expected / "params_shard_0.bin").read_bytes()
