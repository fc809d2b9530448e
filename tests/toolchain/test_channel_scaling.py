"""Scaled channels: where graphs allow them, that they change no result, and that errors become smaller."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlc_toolchain.calibrated_weights import Calibration
from mlc_toolchain.channel_graph import Channels, scalable_channels
from mlc_toolchain.channel_scaling import fold_factors, scale_channels
from mlc_toolchain.conversion_run import run_conversion
from mlc_toolchain.convert_weight import ConvertOptions, plan_conversion
from model_zoo.registry import ARCHITECTURES, ExportedModel, export_model
from quantization.group import decode
from quantization.schemes import SCHEMES
from tests.e2e import oracle
from tests.e2e.checkpoints import VOCAB, configs, random_model, save_checkpoint
from tests.toolchain.test_convert_weight import tensors_of

NAME = "llama-odd-llama3"
LAYER = "model.layers.1"


def tiny(architecture: str) -> ExportedModel:
    return export_model(replace(ARCHITECTURES[architecture].tiny, num_hidden_layers=2))


def found(model: ExportedModel) -> list[Channels]:
    return scalable_channels(model.mod, [parameter.name for parameter in model.params])


def test_norms_and_gated_mlps_of_llama() -> None:
    norms = ("input_layernorm.weight",), ("post_attention_layernorm.weight",)
    qkv, up, down = ((f"{name}.weight",) for name in ("self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj"))
    expected = [(norms[0], 0, qkv), (up, 136, down), (norms[1], 0, up)]
    own = [c for c in found(tiny("llama")) if c.producers[0].startswith(LAYER)]
    assert [(c.producers, c.first, c.consumers) for c in own] == [
        (tuple(f"{LAYER}.{p}" for p in producers), first, tuple(f"{LAYER}.{c}" for c in consumers))
        for producers, first, consumers in expected
    ]


@pytest.mark.parametrize(
    ("architecture", "consumers"),
    [
        ("gpt2", {"attn.c_attn", "mlp.c_fc"}),  # GELU is between the others
        ("qwen3_moe", {"self_attn.qkv_proj"}),  # routers and experts read the other norm
        ("cohere", {"self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj"}),  # two of them read one norm
    ],
)
def test_other_readers_prevent_scaling(architecture: str, consumers: set[str]) -> None:
    names = {name for channels in found(tiny(architecture)) for name in channels.consumers}
    assert {".".join(name.split(".")[-3:-1]) for name in names} == consumers


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaled") / "hf"
    save_checkpoint(random_model(NAME), folder)
    return folder


def unquantized(source: Path) -> ExportedModel:
    config = json.loads((source / "config.json").read_text())
    return export_model(ARCHITECTURES["llama"].config.from_hf(config))


def test_a_model_with_scaled_channels_has_the_same_logits(source: Path, tmp_path: Path) -> None:
    rng, ids = np.random.default_rng(0), np.random.default_rng(1).integers(0, VOCAB, 20).tolist()
    conversion = plan_conversion(ConvertOptions(str(source), "q0f32", tmp_path / "out"))
    run_conversion(conversion, tmp_path / "plain")
    every = found(unquantized(source))
    assert len(every) == 6
    for channels in every:
        width = conversion.model.parameters[channels.consumers[0]][-1]
        conversion = fold_factors(conversion, channels, np.exp2(rng.uniform(-1, 1, width)).astype(np.float32))
    run_conversion(conversion, tmp_path / "scaled")
    plain, scaled = (oracle.logits(oracle.from_folder(configs()[NAME], tmp_path / f), ids) for f in ("plain", "scaled"))
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=1e-5 * np.abs(plain).max())
    name = f"{LAYER}.mlp.down_proj.weight"
    assert not np.allclose(tensors_of(tmp_path / "plain")[name], tensors_of(tmp_path / "scaled")[name], rtol=0.1)


def test_errors_of_outputs_become_smaller(source: Path, tmp_path: Path) -> None:
    """Of the projection down, some inputs of which are large, relative to the same scale search without factors."""
    name, scheme = f"{LAYER}.mlp.down_proj", SCHEMES["q4f16_nl"]
    planned = plan_conversion(ConvertOptions(str(source), "q4f16_nl", tmp_path / "out"))
    parameters = planned.model.parameters
    rng = np.random.default_rng(2)
    squares = {p: np.exp(3 * rng.standard_normal(shape[-1])).astype(np.float32) for p, shape in parameters.items()}
    calibration = Calibration(squares, {}, {"kind": "text"})
    scaled = scale_channels(planned, unquantized(source), calibration)
    errors = []
    for conversion in (replace(planned, calibration=calibration), scaled):
        task = next(task for task in conversion.tasks if task.production.name == f"{name}.weight")
        codes, scales = conversion.stream().convert(task).arrays
        weight = decode({"q_weight": codes, "q_scale": scales}, scheme, task.production.shape[-1]).astype(np.float32)
        factors = getattr(task.production.value, "factors", np.float32(1))
        original = planned.reader.read(f"{name}.weight").astype(np.float32)
        errors.append((np.square(weight / factors - original) * squares[f"{name}.weight"]).sum())
    assert errors[1] < 0.9 * errors[0]
