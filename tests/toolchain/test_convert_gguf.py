"""Conversions of a real GGUF and of a Hugging Face checkpoint with the same weights give equal files."""

import hashlib
import json
from pathlib import Path

import pytest

from mlc_errors import UsageError
from mlc_toolchain.conversion_plan import describe_model, plan_weights
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.convert_weight import ConvertOptions, preview
from mlc_toolchain.source import GGUFSource, resolve_source
from quantization.schemes import get_scheme
from tests.toolchain.hf_from_gguf import write_hf_checkpoint


def converted_hashes(source, folder):
    scheme = get_scheme("q4f16_1")
    conversion = plan_weights(describe_model(source.config(), "auto", scheme), scheme, source.weights())
    run_conversion(conversion, folder)
    hashes = {}
    for shard in json.loads((folder / "tensor-cache.json").read_text())["records"]:
        data = (folder / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            part = data[record["byteOffset"] : record["byteOffset"] + record["nbytes"]]
            hashes[record["name"]] = (record["shape"], hashlib.sha256(part).hexdigest())
    return hashes


def test_smollm2_as_gguf_and_as_safetensors_convert_to_the_same_weights(smollm2_gguf, tmp_path):
    for folder in ("hf", "from_hf", "from_gguf"):
        (tmp_path / folder).mkdir()
    write_hf_checkpoint(smollm2_gguf, tmp_path / "hf")
    from_gguf = resolve_source(str(smollm2_gguf))
    from_hf = resolve_source(str(tmp_path / "hf"))
    assert from_gguf.config() == from_hf.config()
    expected = converted_hashes(from_hf, tmp_path / "from_hf")
    assert len(expected) == 303
    assert converted_hashes(from_gguf, tmp_path / "from_gguf") == expected


@pytest.mark.parametrize(("scheme", "count"), [("q8f16_1", 121), ("q0f16", 0)])
def test_weights_that_are_quantized_again_are_named(smollm2_gguf, tmp_path, scheme: str, count: int):
    note = preview(ConvertOptions(str(smollm2_gguf), scheme, tmp_path / "out")).note
    again = f"{count} weights are quantized in the checkpoint; groups that {scheme} cannot keep are quantized again"
    assert note == (again if count else "")


@pytest.mark.parametrize(
    ("source_format", "message"),
    [
        ("pytorch", "--source-format pytorch: x.gguf is a GGUF file"),
        ("foo", "unknown source format: got 'foo'"),
    ],
)
def test_a_gguf_file_has_no_other_format(source_format: str, message: str):
    with pytest.raises(UsageError, match=message):
        GGUFSource(Path("x.gguf")).weights(source_format)
