"""NVFP4 checkpoints of ModelOpt and compressed-tensors, one code at a time, and a model that keeps their codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.torch import save_file

from mlc_errors import UnsupportedError
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.packed_checkpoint import open_packed
from mlc_toolchain.readers.base import CheckpointError, CheckpointReader
from mlc_toolchain.readers.safetensors import SafetensorsReader
from mlc_toolchain.source import resolve_source
from quantization.group import decode
from quantization.schemes import SCHEMES
from tests.toolchain.packing import as_torch
from tests.toolchain.test_convert_weight import tensors_of

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
HIDDEN, INNER = 64, 96
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
Tensors = dict[str, np.ndarray]


def layer(rng: np.random.Generator, name: str, outputs: int, inputs: int, settings: Any) -> tuple[Tensors, np.ndarray]:
    """The tensors of a linear layer, and its weights float32 [out, in]."""
    codes = rng.integers(0, 16, (outputs, inputs), np.uint8)
    scales = rng.uniform(8, 448, (outputs, inputs // 16)).astype(ml_dtypes.float8_e4m3fn)
    whole = np.float32(2**-12 if settings is COMPRESSED else rng.uniform(1e-4, 1e-3))
    weights = np.empty((outputs, inputs), np.float32)
    for (row, column), code in np.ndenumerate(codes):
        value = np.float32(E2M1[code % 8] * (-1 if code >= 8 else 1))
        weights[row, column] = value * (np.float32(scales[row, column // 16]) * whole)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    if settings is COMPRESSED:
        more = {"weight_packed": packed, "weight_global_scale": 1 / whole.reshape(1)}
        more["input_global_scale"] = np.ones(1, np.float32)
    else:
        more = {"weight": packed, "weight_scale_2": np.array(whole), "input_scale": np.array(np.float32(0.01))}
    return {f"{name}.{kind}": array for kind, array in {**more, "weight_scale": scales}.items()}, weights


def opened(folder: Path, tensors: Tensors, settings: Any) -> CheckpointReader:
    save_file({name: as_torch(array) for name, array in tensors.items()}, folder / "model.safetensors")
    config = {"quantization_config": settings}
    return open_packed(SafetensorsReader(folder / "model.safetensors"), config, "config.json")


@pytest.mark.parametrize("settings", [MODELOPT, COMPRESSED], ids=["modelopt", "compressed-tensors"])
def test_layers_are_read_as_their_weights(settings: Any, tmp_path: Path) -> None:
    tensors, weights = layer(np.random.default_rng(0), "up", 3, 48, settings)
    others = {"up.k_scale": np.array(np.float32(1)), "lm_head.weight": np.ones((2, 4), np.float32)}
    reader = opened(tmp_path, {**tensors, **others}, settings)
    assert sorted(reader.names()) == ["lm_head.weight", "up.weight"]
    info = reader.info("up.weight")
    assert (info.shape, info.dtype, info.nbytes) == ((3, 48), "float32", 3 * 24 + 3 * 3 + 4)
    np.testing.assert_array_equal(reader.read("up.weight"), weights)
    assert reader.read("lm_head.weight").tolist() == [[1] * 4] * 2


BROKEN: dict[str, Callable[[Tensors], Any]] = {
    "no scale of the matrix": lambda t: t.pop("up.weight_scale_2"),
    "several scales of the matrix": lambda t: t.update({"up.weight_scale_2": np.ones(3, np.float32)}),
    "other blocks": lambda t: t.update({"up.weight_scale": t["up.weight_scale"][:, :2].copy()}),
    "scales of another type": lambda t: t.update({"up.weight_scale": np.ones((3, 3), np.float32)}),
    "weights that are not packed": lambda t: t.update({"up.weight": np.ones((3, 24), np.float32)}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_parts_that_do_not_fit_are_an_error(case: str, tmp_path: Path) -> None:
    tensors, _ = layer(np.random.default_rng(0), "up", 3, 48, MODELOPT)
    BROKEN[case](tensors)
    with pytest.raises(CheckpointError, match="up: got .*expected weight uint8") as caught:
        opened(tmp_path, tensors, MODELOPT)
    assert caught.value.where == (str(tmp_path / "model.safetensors"),)


def test_settings_of_modelopt_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    settings = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(settings))
    tensors, weights = layer(np.random.default_rng(0), "up", 3, 48, MODELOPT)
    found = resolve_source(str(tmp_path)).config()["quantization_config"]
    np.testing.assert_array_equal(opened(tmp_path, tensors, found).read("up.weight"), weights)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**MODELOPT, "quant_algo": "W4A8_AWQ"}, "quant_algo: got 'W4A8_AWQ'; expected NVFP4 or FP8"),
        ({**COMPRESSED, "format": "pack-quantized"}, "format: got 'pack-quantized'; expected nvfp4-pack-quantized"),
    ],
)
def test_other_forms_are_refused_by_name(settings: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        opened(tmp_path, {"norm.weight": np.ones(4, np.float32)}, settings)


def test_a_model_keeps_the_codes(tmp_path: Path) -> None:
    """Scales are rounded to float16; every weight is the same code times that."""
    rng = np.random.default_rng(1)
    shapes = {"q_proj": (64, HIDDEN), "k_proj": (32, HIDDEN), "v_proj": (32, HIDDEN), "o_proj": (HIDDEN, 64)}
    layers = {f"self_attn.{name}": shape for name, shape in shapes.items()}
    layers |= {f"mlp.{name}": (INNER, HIDDEN) for name in ("gate_proj", "up_proj")} | {"mlp.down_proj": (HIDDEN, INNER)}
    tensors = {"model.embed_tokens.weight": rng.standard_normal((40, HIDDEN)).astype(np.float32)}
    tensors |= {"lm_head.weight": tensors["model.embed_tokens.weight"].copy()}
    norms = ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm")
    tensors |= {f"model.{name}.weight": np.ones(HIDDEN, np.float32) for name in norms}
    expected = {}
    for name, shape in layers.items():
        made, expected[name] = layer(rng, f"model.layers.0.{name}", *shape, MODELOPT)
        tensors |= made
    config = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40, "quantization_config": MODELOPT}
    (tmp_path / "source").mkdir()
    (tmp_path / "source/config.json").write_text(json.dumps(config))
    save_file({name: as_torch(array) for name, array in tensors.items()}, tmp_path / "source/model.safetensors")
    convert_weight(ConvertOptions(str(tmp_path / "source"), "q4f16_nvfp4", tmp_path / "out"))
    made, scheme = tensors_of(tmp_path / "out"), SCHEMES["q4f16_nvfp4"]
    for ours, theirs in {
        "mlp.down_proj": ["mlp.down_proj"],
        "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
    }.items():
        parts = {kind: made[f"model.layers.0.{ours}.{kind}"] for kind in ("q_weight", "q_scale")}
        weights = np.concatenate([expected[name] for name in theirs])
        found = decode(parts, scheme, weights.shape[1]).astype(np.float32)
        np.testing.assert_allclose(found, weights, rtol=2**-9)
        assert np.array_equal(found == 0, weights == 0)
