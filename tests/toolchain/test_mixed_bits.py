"""Mixed-precision quantization to a given size: measured, written and configured; tests/e2e/test_quantized.py compiles
one."""

import json

import pytest

from mlc_errors import UsageError
from mlc_runtime.weights import TensorCache
from mlc_toolchain import sensitivity
from mlc_toolchain.bit_allocation import Unit
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.sensitivity import _of_kind
from quantization.schemes import get_scheme
from tests.e2e.checkpoints import random_model, save_checkpoint
from tests.toolchain.test_calibration import TEXT


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    save_checkpoint(random_model("llama-odd-llama3"), folder / "hf")
    (folder / "text").write_text(TEXT)
    return folder


def convert(source, output, bits):
    options = ConvertOptions(str(source / "hf"), "q4f16_nl", output, calibration=str(source / "text"), bits=bits)
    return convert_weight(options)


@pytest.fixture(scope="module")
def model(source):
    """A folder whose weights were converted before gen_config."""
    folder = source / "model"
    report = convert(source, folder, 6.0)
    gen_config(GenConfigOptions(str(source / "hf"), "q4f16_nl", folder))
    return folder, report


def test_a_mixture_has_the_size_that_was_asked_for(model):
    _, report = model
    assert 5.7 < report.bits_per_parameter <= 6.0
    assert {row.scheme for row in report.mixture} >= {"q4f16_nl", "q6f16_nl8"}
    assert all(row.divergence > 0 for row in report.mixture if "embed_tokens" not in row.first)


def test_the_configuration_names_the_mixture_of_the_weights(source, model, tmp_path):
    folder, report = model
    assert report.quantization.startswith("q4f16_nl,")
    assert json.loads((folder / "tensor-cache.json").read_text())["metadata"]["Quantization"] == report.quantization
    assert json.loads((folder / "mlc-chat-config.json").read_text())["quantization"] == report.quantization
    gen_config(GenConfigOptions(str(source / "hf"), "q4f16_nl", tmp_path))
    convert(source, tmp_path, 6.0)
    assert json.loads((tmp_path / "mlc-chat-config.json").read_text())["quantization"] == report.quantization


def test_a_size_below_that_of_the_base_is_refused(source, tmp_path):
    with pytest.raises(UsageError, match="got 4; expected at least the 5.* of q4f16_nl"):
        convert(source, tmp_path / "out", 4.0)


def test_ranges_of_rows_of_the_head_are_measured_and_stored(source, tmp_path, monkeypatch):
    monkeypatch.setattr(sensitivity, "ROWS", 8)
    report = convert(source, tmp_path, 7.5)
    ranges = [row for row in report.mixture if "[" in row.first]
    assert [row.first.partition("[")[2] for row in ranges] == ["0:24]", "24:120]", "120:496]", "496:1003]"]
    assert all(row.first.startswith("lm_head.weight") and row.divergence > 0 for row in ranges)
    head = get_scheme(report.quantization).part("lm_head").of_rows(1003)
    for row, last in zip(ranges, (23, 119, 495, 1002), strict=True):
        assert row.scheme == next(scheme.name for rows, scheme in head if rows.start <= last < rows.stop)
    assert 1 < len(head) < 5
    stored = TensorCache(tmp_path)
    for i, (rows, _) in enumerate(head):
        assert stored.records[f"lm_head.parts.{i}.q_weight"].shape[0] == rows.stop - rows.start


def test_ranges_that_stand_out_are_measured_layer_by_layer():
    names = [f"layers.{i}.weight" for i in range(16)]
    own = {name: 0.1 if name == "layers.5.weight" else 0.001 for name in names}
    units = list(_of_kind(names, lambda part: Unit(part, 10 * len(part), sum(own[n] for n in part))))
    assert [len(u.names) for u in units] == [2, 2, 1, 1, 2, 2, 2, 2, 2]
    assert [n for u in units for n in u.names] == names
    assert units[3].divergence == 0.1
